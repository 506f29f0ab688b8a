// mezzo lint: what mixed precision will spoil in a TorchScript file.
#include <torch/csrc/jit/serialization/import.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/torch/part.h"
#include "core/raise.h"
#include "mezzo/insight_lint_script.h"

namespace mezzo::cli {

nlohmann::ordered_json torch_lint(const nlohmann::ordered_json& request) {
  const auto model = request.at("model").get<std::string>();
  std::optional<torch::jit::Module> module;
  try {
    module = torch::jit::load(model, at::kCPU);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    raise("lint", "'", model,
          "' is no TorchScript file that can be read: ", text.substr(0, text.find('\n')));
  }
  const std::vector<insight::Finding> found = insight::lint_script(*module);
  return {{"text", insight::to_text(found)},
          {"json", nlohmann::ordered_json::parse(insight::to_json(found))}};
}

}  // namespace mezzo::cli
