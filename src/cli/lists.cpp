// mezzo lists
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "cli/dtype_option.h"
#include "cli/operator_json.h"
#include "cli/text_table.h"
#include "cli/word_option.h"
#include "operators/operators.h"
#include "policy/level.h"

namespace mezzo::cli {
namespace {

struct ListsOptions {
  std::optional<DType> dtype;
  std::string cast_class;
  std::string system;
  bool levels = false;
  bool json = false;
};

constexpr CastClass kShown[] = {CastClass::kLow, CastClass::kFloat, CastClass::kPromote,
                                CastClass::kNeutral};

bool is_listed(const Operator& op, const std::string& system) {
  if (system.empty()) return true;
  if (system == "torch") return op.listed_by(System::kCuda) || op.listed_by(System::kCpu);
  return op.listed_by(*parse_system(system)).has_value();
}

/// The rows that were asked for, by class, then by name.
std::vector<std::size_t> rows_of(const ListsOptions& options) {
  const DType low = options.dtype.value_or(kLowTypes.front());
  std::vector<std::size_t> rows;
  for (const CastClass cast_class : kShown) {
    if (!options.cast_class.empty() && options.cast_class != name_of(cast_class)) continue;
    for (std::size_t row = 0; row < operators().size(); ++row) {
      const Operator& op = operators()[row];
      if (op.class_for(low) == cast_class && is_listed(op, options.system)) rows.push_back(row);
    }
  }
  return rows;
}

void print_operators(const ListsOptions& options) {
  const std::vector<DType> lows = low_types(options.dtype);
  const std::vector<std::size_t> rows = rows_of(options);
  if (options.json) {
    auto all = nlohmann::ordered_json::array();
    for (const std::size_t row : rows) all.push_back(json_of(row, lows));
    std::cout << all.dump(2) << '\n';
    return;
  }
  std::vector<std::string> heading{"operator"};
  for (const DType low : lows) heading.emplace_back(name_of(low));
  heading.insert(heading.end(), {"lists", "why"});
  TextTable table(std::move(heading));
  for (const std::size_t row : rows) {
    const Operator& op = operators()[row];
    std::vector<std::string> cells{std::string(op.name)};
    for (const DType low : lows) cells.emplace_back(name_of(op.class_for(low)));
    cells.push_back(listed_in_words(op));
    cells.emplace_back(op.why);
    table.add(std::move(cells));
  }
  table.print(std::cout);
}

nlohmann::ordered_json json_of_level(const Level& level) {
  nlohmann::ordered_json json;
  const auto set = [&json](const char* key, const auto& value) {
    json[key] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  json["level"] = level.name;
  json["brief"] = level.brief;
  json["dtype"] = name_of(level.low);
  set("cast_model_type",
      level.cast_model_type ? std::optional(name_of(*level.cast_model_type)) : std::nullopt);
  json["patch_torch_functions"] = level.cast_ops;
  set("keep_batchnorm_fp32", level.keep_batchnorm_fp32);
  set("master_weights", level.master_weights);
  json["loss_scale"] = level.loss_scale ? nlohmann::ordered_json(*level.loss_scale)
                                        : nlohmann::ordered_json("dynamic");
  return json;
}

std::string word_of(const std::optional<bool>& value) {
  return !value ? "-" : *value ? "yes" : "no";
}

std::string scale_in_words(const Level& level) {
  if (!level.loss_scale) return "dynamic";
  std::ostringstream text;
  text << *level.loss_scale;
  return text.str();
}

void print_levels(bool as_json) {
  if (as_json) {
    auto all = nlohmann::ordered_json::array();
    for (const Level& level : levels()) all.push_back(json_of_level(level));
    std::cout << all.dump(2) << '\n';
    return;
  }
  TextTable table({"level", "cast_model_type", "patch_torch_functions", "keep_batchnorm_fp32",
                   "master_weights", "loss_scale", "brief"});
  for (const Level& level : levels()) {
    table.add({std::string(level.name),
               std::string(level.cast_model_type ? name_of(*level.cast_model_type) : "-"),
               level.cast_ops ? "yes" : "no", word_of(level.keep_batchnorm_fp32),
               word_of(level.master_weights), scale_in_words(level), std::string(level.brief)});
  }
  table.print(std::cout);
}

int run(const ListsOptions& options) {
  if (options.levels) {
    print_levels(options.json);
  } else {
    print_operators(options);
  }
  return kDone;
}

}  // namespace

Action setup_lists(CLI::App& app) {
  const auto options = std::make_shared<ListsOptions>();
  add_low_dtype_option(app, options->dtype, "Only the classes for this type");
  std::vector<std::string> classes;
  for (const CastClass cast_class : kShown) classes.emplace_back(name_of(cast_class));
  app.add_option("--class", options->cast_class, "Only operators of this class")
      ->check(one_of(classes));
  app.add_option("--system", options->system, "Only operators that this system lists")
      ->check(one_of({"apex", "mxnet", "torch", "cuda", "cpu"}));
  app.add_flag("--levels", options->levels, "Print the levels and their defaults instead")
      ->excludes("--dtype")
      ->excludes("--class")
      ->excludes("--system");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] { return run(*options); };
}

}  // namespace mezzo::cli
