// Shapes of inputs, as every command takes them: [NAME=]SHAPE[:DTYPE].
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace mezzo::cli {

/// The request of one --input.
struct InputShape {
  std::string text;       ///< as it was given
  std::string name = {};  ///< empty: inputs without a name are in order
  std::vector<std::int64_t> sizes = {};
  std::optional<DType> dtype = {};
};

/// Reads "1x3x224x224", "1,3,224,224", "1x128:int64", "scalar" or any of them behind "NAME=".
/// Throws ConfigError, from `command`, for another text.
InputShape read_input_shape(const char* command, const std::string& text);

/// The same of all texts, for the part with LibTorch: objects of text, name, sizes and dtype
/// (float32 where none is given).
nlohmann::ordered_json input_requests(const char* command, const std::vector<std::string>& texts);

}  // namespace mezzo::cli
