// mezzo lint
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/torch_part.h"
#include "core/raise.h"

namespace mezzo::cli {
namespace {

struct LintOptions {
  std::string model;
  bool json = false;
};

int lint_model(const LintOptions& options) {
  if (!std::filesystem::exists(options.model)) raise("lint", "'", options.model, "' is not there");
  const nlohmann::ordered_json answer = ask_torch("lint", {{"model", options.model}});
  if (options.json) {
    std::cout << answer.at("json").dump(2) << '\n';
  } else {
    std::cout << answer.at("text").get<std::string>();
  }
  return kDone;
}

}  // namespace

Action setup_lint(CLI::App& app) {
  const auto options = std::make_shared<LintOptions>();
  app.add_option("MODEL", options->model, "A TorchScript file, traced or scripted")
      ->required()
      ->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] { return lint_model(*options); };
}

}  // namespace mezzo::cli
