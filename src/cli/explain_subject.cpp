#include "cli/explain_subject.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/operator_json.h"
#include "cli/torch_part.h"
#include "core/raise.h"
#include "policy/registry.h"
#include "policy/toml.h"

namespace mezzo::cli {
namespace {

constexpr std::string_view kSpace = "aten::";

/// Gives rows to an operator that only LibTorch knows.
void learn(const std::string& name) {
  if (name.empty() || !rows_named(name).empty() || is_foreign(name)) return;
  try {
    for (const auto& overload : ask_torch("overloads", name)) {
      row_for(overload.get<std::string>());
    }
  } catch (const UnsupportedError&) {
    // Without LibTorch the lists are all there is to know.
  }
}

/// The functional rows and the form of "exp_", "add_.Tensor" and "mm.out".
void find_other_form(Subject& subject) {
  std::string_view name = subject.name;
  if (name.starts_with(kSpace)) name.remove_prefix(kSpace.size());
  if (const auto found = find(name)) {
    subject.rows = {found->row};
    subject.form = found->form;
  } else if (name.ends_with('_') && name.find('.') == std::string_view::npos) {
    subject.rows = resolve(std::string(kSpace) + std::string(name.substr(0, name.size() - 1)));
    subject.form = Form::kInPlace;
  }
}

std::string class_in_words(CastClass cast_class, DType low) {
  switch (cast_class) {
    case CastClass::kLow:
      return "runs in " + std::string(name_of(low));
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

}  // namespace

std::string Subject::title() const {
  if (rows.empty()) return name;
  const std::string_view first = row_name(rows.front());
  if (rows.size() == 1) return std::string(first);
  const std::string_view base = first.substr(0, first.find('.'));
  const bool one = std::ranges::all_of(rows, [&](std::size_t row) {
    const std::string_view other = row_name(row);
    return other.substr(0, other.find('.')) == base;
  });
  return one ? std::string(base) : name;
}

std::vector<std::string_view> Subject::aliases() const {
  std::set<std::string_view> names;
  for (const std::size_t row : rows) {
    if (row >= operators().size()) continue;
    for (const std::string_view alias : aliases_of(row)) names.insert(alias);
  }
  return {names.begin(), names.end()};
}

Subject subject_named(const std::string& name, std::vector<Rules> rules) {
  Subject subject{name, Form::kFunctional, rows_named(name), std::move(rules)};
  if (subject.rows.empty()) find_other_form(subject);
  if (subject.rows.empty()) {
    learn(name);
    subject.rows = rows_named(name);
  }
  return subject;
}

std::vector<Rules> default_rules(const std::optional<DType>& only) {
  std::vector<Rules> rules;
  for (const DType low : low_types(only)) rules.emplace_back(low);
  return rules;
}

Rules rules_of_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) raise("explain", "cannot read the policy file '", path, "'");
  const PolicyFile file = read_policy_file(in, path);
  for (const PolicyFile::Entry& entry : file.entries) learn(entry.what.name);
  return changed_by(file, path, Rules(file.low));
}

std::optional<std::string> at_level(const Subject& subject, const Level& level) {
  const auto rules = std::ranges::find(subject.rules, level.low, &Rules::low);
  if (rules == subject.rules.end()) return std::nullopt;
  if (!level.cast_ops) {
    return "untouched: the model and its inputs are " +
           std::string(name_of(*level.cast_model_type));
  }
  if (subject.form == Form::kInPlace) return "runs in the type of its first argument";
  if (subject.form == Form::kOut) return "runs in the type of the given tensor";
  return class_in_words(rules->classify(subject.name), level.low);
}

}  // namespace mezzo::cli
