#include "cli/convert_script.h"

#include <CLI/CLI.hpp>
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/input_shape.h"
#include "cli/torch_part.h"
#include "core/raise.h"
#include "platform/files.h"

namespace mezzo::cli {
namespace {

using ScriptJson = nlohmann::ordered_json;

ScriptJson request_of(const ScriptConversion& conversion) {
  const convert::Options& options = conversion.options;
  ScriptJson request{{"in", conversion.in},
                     {"out", conversion.out},
                     {"dtype", options.target_dtype},
                     {"exclude", options.excluded_names},
                     {"cast_weights", options.cast_optional_params},
                     {"fold_batch_norm", options.fold_batch_norm},
                     {"inputs", input_requests("convert", conversion.inputs)}};
  if (options.target_dtype_ops) request["target_ops"] = *options.target_dtype_ops;
  if (options.fp32_ops) request["fp32_ops"] = *options.fp32_ops;
  if (options.tolerance) request["tolerance"] = *options.tolerance;
  if (options.conditional_fp32_ops) {
    request["conditional"] = ScriptJson::array();
    for (const convert::Conditional& one : *options.conditional_fp32_ops) {
      request["conditional"].push_back(
          {{"op", one.op}, {"argument", one.attribute}, {"values", one.values}});
    }
  }
  return request;
}

}  // namespace

bool is_script(const std::string& path) {
  for (const char* end : {".pt", ".pth", ".ts", ".torchscript"}) {
    if (path.ends_with(end)) return true;
  }
  std::array<char, 4> start{};
  std::ifstream in(path, std::ios::binary);
  return in.read(start.data(), start.size()) && std::string_view(start.data(), 4) == "PK\x03\x04";
}

void check_for_script(const CLI::App& app, const std::string& path) {
  static const std::set<std::string> kForScripts = {"IN",
                                                    "--output",
                                                    "--dtype",
                                                    "--quiet",
                                                    "--json",
                                                    "--report",
                                                    "--target-ops",
                                                    "--fp32-ops",
                                                    "--conditional-fp32-ops",
                                                    "--exclude",
                                                    "--cast-optional-params",
                                                    "--fold-batch-norm",
                                                    "--input",
                                                    "--tolerance"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || kForScripts.contains(option->get_name())) continue;
    raise<ConfigError>("convert", option->get_name(), " is for other models, and '", path,
                       "' is a TorchScript module");
  }
  if (app.count("--output") == 0)
    raise<ConfigError>("convert", "nothing to write: give -o OUT for the converted module");
  if (app.count("--tolerance") != 0 && app.count("--input") == 0)
    raise<ConfigError>("convert",
                       "--tolerance compares two TorchScript modules on inputs; give --input SHAPE "
                       "for each tensor");
}

void convert_script(const ScriptConversion& conversion) {
  for (const std::string& report : conversion.reports) {
    if (!report.ends_with(".json"))
      raise<ConfigError>("convert", "--report '", report,
                         "': of a TorchScript module there is a report in JSON alone; expected a "
                         "name that ends in .json");
  }
  const ScriptJson answer = ask_torch("convert_script", request_of(conversion));
  const auto json = answer["json"].get<std::string>();
  for (const std::string& report : conversion.reports) {
    platform::write_atomically(platform::behind_links(report),
                               [&](std::ostream& out) { out << json; });
  }
  if (conversion.json) {
    std::cout << json;
  } else if (!conversion.quiet) {
    std::cout << answer["text"].get<std::string>();
  }
}

}  // namespace mezzo::cli
