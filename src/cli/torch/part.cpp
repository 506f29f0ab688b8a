// The entry of libmezzo_cli_torch.so: requests and answers are JSON, so that nothing but text
// crosses between the program and the library.
#include "cli/torch/part.h"

#include <nlohmann/json.hpp>
#include <string>

#include "mezzo/error.h"

namespace mezzo::cli {
namespace {

constexpr struct {
  std::string_view name;
  TorchFunction function;
} kFunctions[] = {
    {"export", torch_export},
    {"info", torch_info},
    {"lint", torch_lint},
    {"overloads", torch_overloads},
    {"convert_script", torch_convert_script},
};

nlohmann::ordered_json answer(std::string_view name, const char* request) {
  for (const auto& row : kFunctions) {
    if (row.name != name) continue;
    return {{"done", row.function(nlohmann::ordered_json::parse(request))}};
  }
  return {{"failed", "the library has no function '" + std::string(name) + "'"}};
}

}  // namespace
}  // namespace mezzo::cli

/// The answer as JSON: {"done": ...}, {"failed": message} or {"wrong_usage": message}. The text
/// lives until the thread calls again.
extern "C" __attribute__((visibility("default"))) const char* mezzo_cli_torch(const char* function,
                                                                              const char* request) {
  static thread_local std::string text;
  try {
    text = mezzo::cli::answer(function, request).dump();
  } catch (const mezzo::ConfigError& error) {
    text = nlohmann::ordered_json{{"wrong_usage", error.what()}}.dump();
  } catch (const std::exception& error) {
    text = nlohmann::ordered_json{{"failed", error.what()}}.dump();
  }
  return text.c_str();
}
