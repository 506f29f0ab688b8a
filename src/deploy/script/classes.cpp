#include "deploy/script/classes.h"

#include <algorithm>

#include "core/scalar_type.h"
#include "policy/registry.h"

namespace mezzo::deploy::script {
namespace {

constexpr const char* kListsOf = "convert_hybrid_block";

/// The rows that a name means. Operators that only the dispatcher knows get a row.
std::vector<std::size_t> rows_of(const std::string& name, const Policy& policy) {
  policy.classify(name);  // throws for an unknown name
  return rows_named(name);
}

bool is_edit(const std::string& name) {
  return name.starts_with('+') || name.starts_with('-');
}

}  // namespace

OperatorClasses::OperatorClasses(const ScriptOptions& options)
    : low_(low_dtype_of(options.target_dtype, kListsOf)) {
  const Rules defaults(low_);
  classes_ = defaults.classes();
  if (options.conditional_fp32_ops) apply_conditions(*options.conditional_fp32_ops);
  if (options.target_dtype_ops)
    apply_list("target_dtype_ops", CastClass::kLow, *options.target_dtype_ops);
  if (options.fp32_ops) apply_list("fp32_ops", CastClass::kFloat, *options.fp32_ops);
}

void OperatorClasses::apply_list(const char* option, CastClass cast_class,
                                 const std::vector<std::string>& given) {
  const auto edits = std::ranges::count_if(given, is_edit);
  if (edits != 0 && edits != std::ssize(given)) {
    raise<ConfigError>(kListsOf, option,
                       " mixes names with \"+op\" and \"-op\"; expected names alone, which replace "
                       "the default list, or edits alone");
  }
  if (edits == 0) {
    for (std::size_t row = 0; row < classes_.size(); ++row) {
      if (classes_[row] == cast_class && !changed_.contains(row))
        classes_[row] = CastClass::kNeutral;
    }
  }
  const Policy policy = Policy::defaults(scalar_type_of(low_));
  for (const std::string& entry : given) {
    if (!entry.starts_with('-')) {
      put(option, edits == 0 ? entry : entry.substr(1), cast_class);
      continue;
    }
    for (const std::size_t row : rows_of(entry.substr(1), policy)) {
      if (class_of(row) == cast_class && !changed_.contains(row))
        classes_[row] = CastClass::kNeutral;
    }
  }
}

void OperatorClasses::put(const char* option, const std::string& name, CastClass cast_class) {
  const auto rows = rows_of(name, Policy::defaults(scalar_type_of(low_)));
  for (const std::size_t row : rows) {
    if (row >= classes_.size()) classes_.resize(row + 1, CastClass::kNeutral);
    const Change change{option, name, rows.size(), cast_class};
    const auto [before, is_new] = changed_.try_emplace(row, change);
    if (!is_new) {
      const Change& other = before->second;
      if (other.width < change.width) continue;
      if (other.width == change.width && other.cast_class != cast_class) {
        raise<ConfigError>(kListsOf, option, ": '", name, "' is on ", other.option,
                           " as well, as '", other.name,
                           "'; expected each operator on one list alone");
      }
      before->second = change;
    }
    if (cast_class == CastClass::kLow && condition_of(row) != nullptr) {
      low_otherwise_.insert(row);
    } else {
      classes_[row] = cast_class;
    }
  }
}

void OperatorClasses::apply_conditions(const std::vector<Conditional>& conditionals) {
  // The default conditions have operators of their own, which leave the float list.
  for (const Conditional& usual : list_conditional_fp32_ops(scalar_type_of(low_))) {
    for (const ConditionalAlias& alias : conditional_aliases()) {
      if (alias.name != usual.op || alias.argument != usual.argument) continue;
      if (std::ranges::find(usual.values, alias.value) == usual.values.end()) continue;
      for (const std::size_t row : resolve(alias.operators)) classes_[row] = CastClass::kNeutral;
    }
  }
  Rules rules(low_);
  for (const Conditional& one : conditionals) {
    // The policy checks names, arguments and values.
    Policy::defaults(scalar_type_of(low_)).with_conditional(one.op, one.argument, one.values);
    rules = rules.with_conditional(one.op, one.argument, one.values);
    for (const ConditionalAlias& alias : conditional_aliases()) {
      if (alias.name != one.op || alias.argument != one.argument) continue;
      if (std::ranges::find(one.values, alias.value) == one.values.end()) continue;
      for (const std::size_t row : resolve(alias.operators)) classes_[row] = CastClass::kFloat;
    }
  }
  conditions_ = rules.conditionals();
  for (const ConditionalRule& rule : conditions_) {
    if (rule.row >= classes_.size()) classes_.resize(rule.row + 1, CastClass::kNeutral);
    classes_[rule.row] = CastClass::kConditional;
  }
}

std::optional<Found> OperatorClasses::find(const std::string& name) const {
  constexpr std::string_view kAtenPrefix = "aten::";
  if (const auto row = registered_row(name)) return Found{*row, Form::kFunctional};
  if (!name.starts_with(kAtenPrefix)) return std::nullopt;
  return mezzo::find(std::string_view(name).substr(kAtenPrefix.size()));
}

CastClass OperatorClasses::class_of(std::size_t row) const {
  return row < classes_.size() ? classes_[row] : CastClass::kNeutral;
}

const Operator* OperatorClasses::table_row(std::size_t row) {
  const auto table = operators();
  return row < table.size() ? &table[row] : nullptr;
}

const ConditionalRule* OperatorClasses::condition_of(std::size_t row) const {
  const auto found = std::ranges::find(conditions_, row, &ConditionalRule::row);
  return found == conditions_.end() ? nullptr : &*found;
}

std::string OperatorClasses::why(std::size_t row) const {
  if (const auto change = changed_.find(row); change != changed_.end())
    return change->second.option + " names '" + change->second.name + "'";
  const Operator* const op = table_row(row);
  if (op == nullptr) return "registered by the program";
  if (op->class_for(low_) != class_of(row) && class_of(row) == CastClass::kNeutral)
    return "the given list does not name it";
  return std::string(op->why);
}

}  // namespace mezzo::deploy::script
