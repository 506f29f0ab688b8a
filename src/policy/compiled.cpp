#include "policy/compiled.h"

#include <algorithm>

#include "core/scalar_type.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

Treatment treatment_of_neutral(const Rules& rules, std::size_t row) {
  if (row >= operators().size())
    return rules.overrides_row(row) ? Treatment::kShield : Treatment::kPass;
  const Operator& op = operators()[row];
  if (op.alone) return Treatment::kShield;
  const bool by_default = op.class_for(rules.low()) == CastClass::kNeutral;
  return by_default || op.native_promotion ? Treatment::kPass : Treatment::kShield;
}

Treatment treatment_in(const Rules& rules, std::size_t row) {
  switch (rules.class_of(row)) {
    case CastClass::kLow:
      return Treatment::kLow;
    case CastClass::kFloat:
      return Treatment::kFloat;
    case CastClass::kPromote: {
      const bool native = row < operators().size() && operators()[row].native_promotion;
      return native ? Treatment::kPass : Treatment::kPromote;
    }
    case CastClass::kConditional:
      return Treatment::kConditional;
    case CastClass::kBanned:
      return Treatment::kBanned;
    case CastClass::kNeutral:
      break;
  }
  return treatment_of_neutral(rules, row);
}

}  // namespace

CompiledPolicy::CompiledPolicy(const Rules& rules)
    : low_(scalar_type_of(rules.low())), conditionals_(rules.conditionals()) {
  treatments_.reserve(rules.classes().size());
  for (std::size_t row = 0; row < rules.classes().size(); ++row)
    treatments_.push_back(treatment_in(rules, row));
}

const ConditionalRule* CompiledPolicy::condition_of(std::size_t row) const noexcept {
  const auto found = std::ranges::find(conditionals_, row, &ConditionalRule::row);
  return found == conditionals_.end() ? nullptr : &*found;
}

}  // namespace mezzo
