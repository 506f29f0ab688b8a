// mezzo explain
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "cli/dtype_option.h"
#include "cli/operator_json.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "operators/operators.h"
#include "policy/level.h"
#include "policy/toml.h"

namespace mezzo::cli {
namespace {

struct Options {
  std::string op;
  std::string policy;
  std::optional<DType> dtype;
  bool json = false;
};

/// What is to be explained: a name, its rows, and the rules for each low type.
struct Subject {
  std::string name;
  std::vector<std::size_t> rows;
  std::vector<Rules> rules;
};

Rules rules_of_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) raise("explain", "cannot read the policy file '", path, "'");
  const PolicyFile file = read_policy_file(in, path);
  return changed_by(file, path, Rules(file.low));
}

std::vector<Rules> rules_of(const Options& options) {
  if (!options.policy.empty()) {
    const Rules rules = rules_of_file(options.policy);
    if (options.dtype && *options.dtype != rules.low()) {
      raise<ConfigError>("explain", "'", options.policy, "' is a policy for ", name_of(rules.low()),
                         ", not for ", name_of(*options.dtype));
    }
    return {rules};
  }
  std::vector<Rules> rules;
  for (const DType low : low_types(options.dtype)) rules.emplace_back(low);
  return rules;
}

/// The base name where all rows have one, else the name as it was given.
std::string title_of(const std::string& given, const std::vector<std::size_t>& rows) {
  if (rows.empty()) return given;
  if (rows.size() == 1) return std::string(operators()[rows.front()].name);
  for (const std::size_t row : rows) {
    if (operators()[row].base() != operators()[rows.front()].base()) return given;
  }
  return std::string(operators()[rows.front()].base());
}

/// The rows of a name; those of its functional form for "exp_" and "mm.out".
std::vector<std::size_t> rows_of_any_form(std::string_view name) {
  std::vector<std::size_t> rows = resolve(name);
  constexpr std::string_view kSpace = "aten::";
  if (name.starts_with(kSpace)) name.remove_prefix(kSpace.size());
  if (rows.empty() && name.find('.') == std::string_view::npos && name.ends_with('_')) {
    rows = resolve(name.substr(0, name.size() - 1));
  }
  if (rows.empty()) {
    if (const auto found = find(name)) rows.push_back(found->row);
  }
  return rows;
}

std::string level_in_words(const Level& level, CastClass cast_class) {
  const std::string low(name_of(level.low));
  if (!level.cast_ops) {
    return "untouched: the model and its inputs are " +
           std::string(name_of(*level.cast_model_type));
  }
  switch (cast_class) {
    case CastClass::kLow:
      return "runs in " + low;
    case CastClass::kFloat:
      return "runs in float32";
    case CastClass::kPromote:
      return "runs in the widest type of its arguments";
    case CastClass::kConditional:
      return "runs in float32 for some values of an argument";
    case CastClass::kBanned:
      return "is an error";
    case CastClass::kNeutral:
      break;
  }
  return "runs in whatever type arrives";
}

/// The rules that hold at a level; nothing where the user asked for the other type only.
const Rules* rules_at(const Level& level, const Subject& subject) {
  for (const Rules& rules : subject.rules) {
    if (rules.low() == level.low) return &rules;
  }
  return nullptr;
}

std::vector<std::string_view> aliases(const Subject& subject) {
  std::set<std::string_view> names;
  for (const std::size_t row : subject.rows) {
    for (const std::string_view alias : aliases_of(row)) names.insert(alias);
  }
  return {names.begin(), names.end()};
}

nlohmann::ordered_json json_of(const Subject& subject) {
  nlohmann::ordered_json json;
  json["op"] = title_of(subject.name, subject.rows);
  std::vector<DType> lows;
  for (const Rules& rules : subject.rules) {
    lows.push_back(rules.low());
    json["class"][std::string(name_of(rules.low()))] = name_of(rules.classify(subject.name));
  }
  json["why"] = subject.rules.front().why(subject.name);
  json["aliases"] = aliases(subject);
  json["sources"] = nlohmann::ordered_json::array();
  auto overloads = nlohmann::ordered_json::array();
  for (const std::size_t row : subject.rows) {
    nlohmann::ordered_json overload = cli::json_of(row, lows);
    for (const auto& system : overload["sources"]) {
      if (std::ranges::find(json["sources"], system) == json["sources"].end()) {
        json["sources"].push_back(system);
      }
    }
    for (const Rules& rules : subject.rules) {
      overload["class"][std::string(name_of(rules.low()))] = name_of(rules.class_of(row));
    }
    overloads.push_back(std::move(overload));
  }
  for (const Level& level : levels()) {
    if (const Rules* rules = rules_at(level, subject)) {
      json["levels"][std::string(level.name)] =
          level_in_words(level, rules->classify(subject.name));
    }
  }
  json["overloads"] = std::move(overloads);
  return json;
}

void print_field(std::string_view name, std::string_view text) {
  while (true) {
    const std::size_t end = text.find('\n');
    std::cout << "  " << name << std::string(name.size() < 9 ? 9 - name.size() : 1, ' ')
              << text.substr(0, end) << '\n';
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
    name = "";
  }
}

void print(const Subject& subject) {
  const std::string title = title_of(subject.name, subject.rows);
  std::cout << title << '\n';
  if (title != subject.name) print_field("asked", subject.name);
  for (const Rules& rules : subject.rules) {
    print_field(name_of(rules.low()), name_of(rules.classify(subject.name)));
  }
  print_field("why", subject.rules.front().why(subject.name));
  if (subject.rows.size() > 1) {
    std::string names;
    for (const std::size_t row : subject.rows) {
      (names += names.empty() ? "" : ", ") += operators()[row].name;
    }
    print_field("means", names);
  }
  for (const Level& level : levels()) {
    const Rules* rules = rules_at(level, subject);
    if (rules == nullptr) continue;
    print_field(level.name, level_in_words(level, rules->classify(subject.name)));
  }
  std::string names;
  for (const std::string_view alias : aliases(subject)) {
    (names += names.empty() ? "" : ", ") += alias;
  }
  if (!names.empty()) print_field("aliases", names);
}

int run(const Options& options) {
  const Subject subject{options.op, rows_of_any_form(options.op), rules_of(options)};
  if (subject.rows.empty() && !is_foreign(options.op)) {
    const std::string hint = did_you_mean(options.op, known_names());
    std::cerr << "mezzo explain: unknown operator '" << options.op << "'"
              << (hint.empty() ? ": what no list has runs in whatever type arrives" : hint) << '\n';
    return kFailed;
  }
  if (options.json) {
    std::cout << json_of(subject).dump(2) << '\n';
  } else {
    print(subject);
  }
  return kDone;
}

}  // namespace

Action setup_explain(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("operator", options->op,
                 "An operator's name: softmax, aten::softmax, softmax.int, or a name of Apex "
                 "(F.linear) or MXNet (FullyConnected)")
      ->required();
  app.add_option("--policy", options->policy, "Explain with this policy file (docs/policy.md)")
      ->type_name("FILE");
  add_low_dtype_option(app, options->dtype, "Only this type and its levels");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] { return run(*options); };
}

}  // namespace mezzo::cli
