#include "policy/rules.h"

#include <algorithm>
#include <utility>

#include "core/nearest.h"
#include "core/raise.h"
#include "operators/operators.h"
#include "policy/registry.h"

namespace mezzo {
namespace {

constexpr std::string_view kInRules = "policy";

bool is_conditional_alias(std::string_view name) {
  return std::ranges::find(conditional_aliases(), name, &ConditionalAlias::name) !=
         conditional_aliases().end();
}

/// In-place and out= forms: their row, and what happens to it.
std::optional<Found> other_form(std::string_view name) {
  constexpr std::string_view kSpace = "aten::";
  if (name.starts_with(kSpace)) name.remove_prefix(kSpace.size());
  const auto found = find(name);
  if (found && found->form != Form::kFunctional) return found;
  if (!name.ends_with('_') || name.find('.') != std::string_view::npos) return std::nullopt;
  const std::vector<std::size_t> rows =
      resolve(std::string(kSpace) + std::string(name.substr(0, name.size() - 1)));
  if (rows.empty()) return std::nullopt;
  return Found{rows.back(), Form::kInPlace};
}

std::string_view sentence_of(Form form) {
  return form == Form::kInPlace
             ? "in place: the result keeps self's type and the other arguments are cast to it"
             : "out=: the result keeps the type of the given tensor";
}

/// The rows that MXNet's conditional operator means for one value.
std::vector<std::size_t> rows_of_value(std::string_view op, std::string_view argument,
                                       std::string_view value) {
  std::string expected;
  std::vector<std::string_view> values;
  for (const ConditionalAlias& alias : conditional_aliases()) {
    if (alias.name != op) continue;
    if (alias.argument != argument) {
      raise<ConfigError>(kInRules, "'", op, "' is decided by '", alias.argument, "', not by '",
                         argument, "'");
    }
    if (alias.value == value) return resolve(alias.operators);
    (expected += expected.empty() ? "" : ", ") += alias.value;
    values.push_back(alias.value);
  }
  raise<ConfigError>(kInRules, "'", op, "' has no ", argument, " '", value, "'; expected one of ",
                     expected, did_you_mean(value, values));
}

}  // namespace

void raise_unknown_operator(std::string_view name) {
  raise<ConfigError>(kInRules, "unknown operator '", name, "'", did_you_mean(name, known_names()));
}

std::vector<std::size_t> rows_named(std::string_view name) {
  std::vector<std::size_t> rows = resolve(name);
  if (!rows.empty()) return rows;
  for (const std::string& full : {std::string(name), "aten::" + std::string(name)}) {
    if (const auto row = registered_row(full)) return {*row};
  }
  // A base name of registered overloads: "my_ops::roi_align" for "my_ops::roi_align.out".
  for (std::size_t row = operators().size(); row < row_count(); ++row) {
    std::string_view other = row_name(row);
    if (other.starts_with("aten::") && !name.starts_with("aten::")) other.remove_prefix(6);
    if (other.substr(0, other.find('.')) == name) rows.push_back(row);
  }
  return rows;
}

Rules::Rules(DType low) : low_(low) {
  if (!is_low(low)) {
    raise<ConfigError>(kInRules, "the low type is '", name_of(low), "'; expected ",
                       low_type_names());
  }
  classes_.assign(row_count(), CastClass::kNeutral);
  std::ranges::transform(operators(), classes_.begin(),
                         [&](const Operator& op) { return op.class_for(low); });
  for (const Registration& said : registrations()) {
    if (said.row < classes_.size()) classes_[said.row] = said.cast_class;
  }
}

Rules Rules::with(std::string_view op, CastClass cast_class) const {
  if (cast_class == CastClass::kConditional) {
    raise<ConfigError>(kInRules, "'", op,
                       "': a conditional class needs an argument and values; use with_conditional");
  }
  if (const auto form = other_form(op)) {
    raise<ConfigError>(kInRules, "'", op, "' follows '", operators()[form->row].name, "' by rule (",
                       sentence_of(form->form), "); name that instead");
  }
  const std::vector<std::size_t> rows = rows_named(op);
  if (rows.empty() && !is_foreign(op)) raise_unknown_operator(op);
  Rules changed = *this;
  changed.overrides_.push_back({std::string(op), cast_class, {}, {}});
  changed.decide(rows, cast_class);
  return changed;
}

Rules Rules::with_conditional(std::string_view op, std::string_view argument,
                              std::vector<std::string> values) const {
  if (values.empty()) {
    raise<ConfigError>(kInRules, "'", op, "': no value of '", argument, "' is given");
  }
  Rules changed = *this;
  changed.overrides_.push_back(
      {std::string(op), CastClass::kConditional, std::string(argument), std::move(values)});
  const std::vector<std::string>& wanted = changed.overrides_.back().values;
  if (is_conditional_alias(op)) {
    for (const std::string& value : wanted) {
      changed.decide(rows_of_value(op, argument, value), CastClass::kFloat);
    }
    return changed;
  }
  const std::vector<std::size_t> rows = rows_named(op);
  if (rows.empty()) raise_unknown_operator(op);
  if (argument.empty()) raise<ConfigError>(kInRules, "'", op, "': the argument has no name");
  for (const std::size_t row : rows) {
    std::erase_if(changed.conditionals_,
                  [&](const ConditionalRule& rule) { return rule.row == row; });
    changed.conditionals_.push_back({row, std::string(argument), wanted});
  }
  changed.decide(rows, CastClass::kConditional);
  return changed;
}

Rules Rules::without_bans() const {
  Rules changed(low_);
  for (const Override& each : overrides_) {
    if (each.cast_class == CastClass::kConditional) {
      changed = changed.with_conditional(each.name, each.argument, each.values);
    } else {
      const bool banned = each.cast_class == CastClass::kBanned;
      changed = changed.with(each.name, banned ? CastClass::kFloat : each.cast_class);
    }
  }
  return changed;
}

void Rules::decide(const std::vector<std::size_t>& rows, CastClass cast_class) {
  const std::size_t by = overrides_.size() - 1;
  for (const std::size_t row : rows) {
    if (row >= classes_.size()) classes_.resize(row + 1, CastClass::kNeutral);
    const auto before = decisions_.find(row);
    if (before != decisions_.end()) {
      const Decision& old = before->second;
      if (old.width < rows.size()) continue;
      if (old.width == rows.size() && old.cast_class != cast_class) {
        raise<ConfigError>(kInRules, "'", overrides_[by].name,
                           "' is in two classes: ", name_of(old.cast_class), " (as '",
                           overrides_[old.by].name, "') and ", name_of(cast_class));
      }
    }
    decisions_[row] = {cast_class, rows.size(), by};
    classes_[row] = cast_class;
  }
}

CastClass Rules::classify(std::string_view op) const {
  if (is_conditional_alias(op)) return CastClass::kConditional;
  if (const auto form = other_form(op)) return class_of(form->row);
  const std::vector<std::size_t> rows = rows_named(op);
  if (rows.empty()) {
    if (is_foreign(op)) return CastClass::kNeutral;
    raise_unknown_operator(op);
  }
  if (rows.front() < operators().size() && row_name(rows.front()).find('.') == std::string::npos &&
      std::ranges::all_of(rows, [&](std::size_t row) {
        return row < operators().size() &&
               operators()[row].base() == operators()[rows.front()].base();
      })) {
    return class_of(rows.front());
  }
  std::optional<CastClass> common;
  for (const std::size_t row : rows) {
    const CastClass cast_class = class_of(row);
    if (cast_class == CastClass::kNeutral) continue;
    if (common && *common != cast_class) return CastClass::kConditional;
    common = cast_class;
  }
  return common.value_or(CastClass::kNeutral);
}

std::string Rules::reason(std::size_t row) const {
  std::string text;
  if (const auto decision = decisions_.find(row); decision != decisions_.end()) {
    text = std::string(name_of(decision->second.cast_class)) + " by the override of '" +
           overrides_[decision->second.by].name + "'";
    if (row >= operators().size()) return text;
    const Operator& op = operators()[row];
    return text + "; the default is " + std::string(name_of(op.class_for(low_))) + ": " +
           std::string(op.why);
  }
  if (row >= operators().size()) {
    return class_of(row) == CastClass::kNeutral ? "no list has it" : "registered by the program";
  }
  const Operator& op = operators()[row];
  if (class_of(row) != op.class_for(low_)) text = "registered by the program; by default ";
  text += op.why;
  if (const std::string who = opinions(op, low_); !who.empty()) (text += "; ") += who;
  return text;
}

std::string Rules::why(std::string_view op) const {
  if (const auto form = other_form(op)) {
    return std::string(sentence_of(form->form)) + "; " + std::string(operators()[form->row].name) +
           ": " + reason(form->row);
  }
  const std::vector<std::size_t> rows = rows_named(op);
  if (rows.empty()) {
    if (is_foreign(op)) return "has no ATen operator: there is nothing to cast";
    raise_unknown_operator(op);
  }
  std::string first = reason(rows.front());
  const bool same =
      std::ranges::all_of(rows, [&](std::size_t row) { return reason(row) == first; });
  if (same) return first;
  std::string text;
  for (const std::size_t row : rows) {
    if (!text.empty()) text += "\n";
    ((text += row_name(row)) += ": ") += reason(row);
  }
  return text;
}

}  // namespace mezzo
