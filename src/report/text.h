// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace mezzo::report {

std::string fixed(double value, int decimals);  ///< "0.125"; "nan" and "inf" as such
std::string percent(double share);              ///< 0.9123: "91.23 %"
std::string bytes(std::int64_t count);          ///< 1536: "1.5 KiB"
std::string milliseconds(double seconds);       ///< 0.0471: "47.1 ms"
std::string scale_text(double scale);           ///< 65536: "65536", 16777216: "2^24", 0.5: "0.5"
std::string short_number(double value);         ///< three digits: "0.00123", "1.5e-07"
std::string clock(double seconds);              ///< 75: "1:15"

}  // namespace mezzo::report
