// The part of the program that needs LibTorch: a library of its own, opened when a subcommand asks
// for it, so that the others start in milliseconds and work where LibTorch is missing.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace mezzo::cli {

/// Calls a function of the library (src/cli/torch/part.cpp lists them) and returns its answer.
/// Throws UnsupportedError with the reason where the library cannot be opened, ConfigError or Error
/// as the function threw them.
nlohmann::ordered_json ask_torch(const std::string& function,
                                 const nlohmann::ordered_json& request);

/// A function of that library, or of Mezzo's own that it links; null if it has none of that
/// name. Throws UnsupportedError if the library cannot be opened.
void* find_in_torch_part(const std::string& function);

}  // namespace mezzo::cli
