// The bytes of TensorBoard's event files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mezzo/events.h"

namespace mezzo::report {

/// CRC-32C (Castagnoli), as in RFC 3720.
std::uint32_t crc32c(std::string_view data);

/// A record of the file: length, its masked checksum, the message, its masked checksum.
std::string framed(std::string_view message);

/// A protobuf `tensorflow.Event` that holds one scalar.
std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float number);

/// As above, with a histogram over the exponents of magnitudes; they are not empty.
std::string histogram_event(double wall_time, std::int64_t step, std::string_view tag,
                            const Magnitudes& magnitudes);

}  // namespace mezzo::report
