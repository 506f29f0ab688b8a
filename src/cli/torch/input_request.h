// Inputs of TorchScript modules, as the program asks for them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/torch.h"

namespace torch::jit {
struct Module;
}

namespace mezzo::cli {

/// The request of one --input (src/cli/input_shape.h).
struct InputRequest {
  std::string text, name;
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

/// The type of that name. Throws ConfigError, from `command`, for what is none.
at::ScalarType type_named(const char* command, const std::string& name);

/// The requests, as given.
std::vector<InputRequest> input_requests_of(const char* command,
                                            const nlohmann::ordered_json& list);

/// In the order in which the module's `forward` takes them: those with a name are that argument's,
/// the others fill the places that are left, from the first. Throws ConfigError, from `command`,
/// for a name that `forward` does not have, one that comes twice, and a place that stays open.
std::vector<InputRequest> in_order(const char* command, const std::vector<InputRequest>& inputs,
                                   const torch::jit::Module& module);

}  // namespace mezzo::cli
