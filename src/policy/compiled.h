// A policy as the casting layer reads it: by row number.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "mezzo/cast_class.h"
#include "policy/rules.h"

namespace mezzo {

class Policy;

/// Immutable; lives as long as a copy of its Policy.
class CompiledPolicy {
 public:
  explicit CompiledPolicy(const Rules&);

  /// The type that kLow means.
  at::ScalarType low() const noexcept { return low_; }

  /// The class of a row: an index in operators(), or beyond those a registered operator's (see
  /// policy/registry.h). A row registered after the policy was made is neutral.
  CastClass class_of(std::size_t row) const noexcept {
    return row < classes_.size() ? classes_[row] : CastClass::kNeutral;
  }

  /// The condition of a kConditional row.
  const ConditionalRule* condition_of(std::size_t row) const noexcept;

  std::span<const CastClass> classes() const noexcept { return classes_; }
  std::span<const ConditionalRule> conditionals() const noexcept { return conditionals_; }

 private:
  at::ScalarType low_;
  std::vector<CastClass> classes_;
  std::vector<ConditionalRule> conditionals_;
};

/// The compiled form of a policy; no work is done here.
const CompiledPolicy& compiled(const Policy&) noexcept;

}  // namespace mezzo
