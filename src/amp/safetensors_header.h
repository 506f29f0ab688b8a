// The header of a safetensors file: JSON text that says where each tensor's bytes are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::amp::detail {

/// One tensor's row. Offsets count from the end of the header.
struct TensorPlace {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorPlace> tensors;
};

/// The JSON text, padded with spaces to a multiple of 8 bytes.
std::string write_header(const SafetensorsHeader& header);

/// Reads it back. Throws Error, which names `file`, for text that is not such a header, duplicate
/// names, and places that overlap, leave holes or do not fill exactly `data_size` bytes.
SafetensorsHeader read_header(std::string_view text, std::uint64_t data_size,
                              const std::string& file);

}  // namespace mezzo::amp::detail
