// Inputs of TorchScript modules, as they are given on the command line.
#pragma once

#include <string>
#include <vector>

#include "core/torch.h"

namespace mezzo::cli {

/// The request of one --input.
struct InputText {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

/// The type of that name. Throws ConfigError, from `command`, for what is none.
at::ScalarType type_named(const char* command, const std::string& name);

/// Reads SHAPE[:DTYPE]: "1x3x224x224", "1x128:int64" or "scalar". Throws ConfigError, from
/// `command`, for another text.
InputText read_input(const char* command, const std::string& text);

}  // namespace mezzo::cli
