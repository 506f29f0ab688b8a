// mezzo explain
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/dtype_option.h"
#include "cli/explain_subject.h"
#include "cli/operator_json.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "policy/registry.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  std::string op;
  std::string policy;
  std::optional<DType> dtype;
  bool json = false;
};

std::vector<Rules> rules_of(const ExplainOptions& options) {
  if (options.policy.empty()) return default_rules(options.dtype);
  Rules rules = rules_of_file(options.policy);
  if (options.dtype && *options.dtype != rules.low()) {
    raise<ConfigError>("explain", "'", options.policy, "' is a policy for ", name_of(rules.low()),
                       ", not for ", name_of(*options.dtype));
  }
  return {std::move(rules)};
}

Json json_of_overload(std::size_t row, const Subject& subject) {
  std::vector<DType> lows;
  for (const Rules& rules : subject.rules) lows.push_back(rules.low());
  Json json = row < operators().size() ? cli::json_of(row, lows) : Json{{"op", row_name(row)}};
  for (const Rules& rules : subject.rules) {
    json["class"][std::string(name_of(rules.low()))] = name_of(rules.class_of(row));
  }
  return json;
}

Json json_of_subject(const Subject& subject) {
  Json json;
  json["op"] = subject.title();
  for (const Rules& rules : subject.rules) {
    json["class"][std::string(name_of(rules.low()))] = name_of(rules.classify(subject.name));
  }
  json["why"] = subject.rules.front().why(subject.name);
  json["aliases"] = subject.aliases();
  json["sources"] = Json::array();
  auto overloads = Json::array();
  for (const std::size_t row : subject.rows) {
    Json overload = json_of_overload(row, subject);
    for (const Json& system : overload.value("sources", Json::array())) {
      if (std::ranges::find(json["sources"], system) == json["sources"].end()) {
        json["sources"].push_back(system);
      }
    }
    overloads.push_back(std::move(overload));
  }
  for (const Level& level : levels()) {
    if (const auto words = at_level(subject, level)) {
      json["levels"][std::string(level.name)] = *words;
    }
  }
  json["overloads"] = std::move(overloads);
  return json;
}

/// A name and a text of one or more lines, the text in a column of its own.
void print_field(std::string_view name, std::string_view text) {
  constexpr std::size_t kColumn = 10;
  while (true) {
    const std::size_t end = text.find('\n');
    std::cout << "  " << name << std::string(kColumn - name.size(), ' ') << text.substr(0, end)
              << '\n';
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
    name = "";
  }
}

template <typename Names>
void print_names(std::string_view field, const Names& names) {
  std::string text;
  for (const std::string_view name : names) (text += text.empty() ? "" : ", ") += name;
  if (!text.empty()) print_field(field, text);
}

void print(const Subject& subject) {
  const std::string title = subject.title();
  std::cout << title << '\n';
  if (title != subject.name) print_field("asked", subject.name);
  for (const Rules& rules : subject.rules) {
    print_field(name_of(rules.low()), name_of(rules.classify(subject.name)));
  }
  print_field("why", subject.rules.front().why(subject.name));
  if (subject.rows.empty()) return;
  if (subject.rows.size() > 1) {
    std::vector<std::string_view> names;
    for (const std::size_t row : subject.rows) names.push_back(row_name(row));
    print_names("means", names);
  }
  for (const Level& level : levels()) {
    if (const auto words = at_level(subject, level)) print_field(level.name, *words);
  }
  print_names("aliases", subject.aliases());
}

int run(const ExplainOptions& options) {
  const Subject subject = subject_named(options.op, rules_of(options));
  if (subject.rows.empty() && !is_foreign(options.op)) {
    raise<ConfigError>("explain", "unknown operator '", options.op, "'",
                       did_you_mean(options.op, known_names()));
  }
  if (options.json) {
    std::cout << json_of_subject(subject).dump(2) << '\n';
  } else {
    print(subject);
  }
  return kDone;
}

}  // namespace

Action setup_explain(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
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
