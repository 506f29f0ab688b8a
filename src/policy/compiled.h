// A policy as the casting layer reads it: treatments by row number.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "policy/rules.h"
#include "policy/treatment.h"

namespace mezzo {

class Policy;

/// Immutable; lives as long as a copy of its Policy.
class CompiledPolicy {
 public:
  explicit CompiledPolicy(const Rules&);

  /// The type that kLow means.
  at::ScalarType low() const noexcept { return low_; }

  /// How a row is treated: an index in operators(), or beyond those a registered operator's (see
  /// policy/registry.h). Operators of LibTorch's own type promotion, operators that are neutral by
  /// default and rows registered after the policy was made pass; an operator that the policy has
  /// made neutral is shielded with all that it calls.
  Treatment treatment_of(std::size_t row) const noexcept {
    return row < treatments_.size() ? treatments_[row] : Treatment::kPass;
  }

  /// The condition of a kConditional row.
  const ConditionalRule* condition_of(std::size_t row) const noexcept;

  std::span<const Treatment> treatments() const noexcept { return treatments_; }
  std::span<const ConditionalRule> conditionals() const noexcept { return conditionals_; }

  /// A note of the casting layer's: everything that the policy needs is registered with the
  /// dispatcher.
  bool is_installed() const noexcept { return installed_.load(std::memory_order_acquire); }
  void mark_installed() const noexcept { installed_.store(true, std::memory_order_release); }

 private:
  at::ScalarType low_;
  std::vector<Treatment> treatments_;
  std::vector<ConditionalRule> conditionals_;
  mutable std::atomic<bool> installed_ = false;
};

/// The compiled form of a policy; no work is done here.
const CompiledPolicy& compiled(const Policy&) noexcept;

}  // namespace mezzo
