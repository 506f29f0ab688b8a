#include "policy/compiled.h"

#include <algorithm>

#include "policy/scalar_type.h"

namespace mezzo {

CompiledPolicy::CompiledPolicy(const Rules& rules)
    : low_(scalar_type_of(rules.low())),
      classes_(rules.classes()),
      conditionals_(rules.conditionals()) {}

const ConditionalRule* CompiledPolicy::condition_of(std::size_t row) const noexcept {
  const auto found = std::ranges::find(conditionals_, row, &ConditionalRule::row);
  return found == conditionals_.end() ? nullptr : &*found;
}

}  // namespace mezzo
