// mezzo advise
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "mezzo/report.h"

namespace mezzo::cli {
namespace {

struct AdviseOptions {
  std::string file;
  std::string dtype;
  bool json = false;
};

/// The advice that a log holds, by its runs; of one run the last counts.
std::vector<std::pair<std::string, report::PrecisionAdvised>> advice_in(const std::string& file) {
  std::vector<std::pair<std::string, report::PrecisionAdvised>> found;
  for (const report::Run& run : report::read(file).runs) {
    if (!run.advised.empty()) found.emplace_back(run.name, run.advised.back());
  }
  if (found.empty()) {
    raise("advise", "'", file,
          "' holds no advice; insight::dry_run(model, loss).write(log) writes it after RunStarted");
  }
  return found;
}

int print_advice(const AdviseOptions& options) {
  const auto found = advice_in(options.file);
  if (options.json) {
    auto all = nlohmann::ordered_json::array();
    for (const auto& [run, advice] : found) {
      all.push_back({{"run", run},
                     {"steps", advice.steps},
                     {"text", advice.text},
                     {"policies", advice.policies}});
    }
    std::cout << all.dump(2) << '\n';
    return kDone;
  }
  if (options.dtype.empty()) {
    for (const auto& [run, advice] : found)
      std::cout << (found.size() > 1 ? run + "\n" : "") << advice.text;
    return kDone;
  }
  const auto& policies = found.back().second.policies;
  const auto policy = policies.find(options.dtype);
  if (policy == policies.end()) {
    std::string known;
    std::vector<std::string_view> names;
    for (const auto& [name, text] : policies) {
      known += (known.empty() ? "" : ", ") + name;
      names.push_back(name);
    }
    raise<ConfigError>("advise", "--dtype ", options.dtype, ": the log has ", known,
                       did_you_mean(options.dtype, names));
  }
  std::cout << policy->second;
  return kDone;
}

}  // namespace

Action setup_advise(CLI::App& app) {
  const auto options = std::make_shared<AdviseOptions>();
  app.add_option("FILE", options->file, "A log of events (JSON lines) that a dry run wrote into")
      ->required()
      ->type_name("FILE");
  app.add_option("--dtype", options->dtype,
                 "Print the policy file for this type alone: float16, bfloat16, or the estimates "
                 "float8_e4m3fn and float8_e5m2")
      ->type_name("DTYPE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] { return print_advice(*options); };
}

}  // namespace mezzo::cli
