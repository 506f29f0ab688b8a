// What happens to the tensors of one operator call: a pure function of the operator's treatment and
// of what the call holds.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "policy/treatment.h"

namespace mezzo::casting {

/// What was seen among the floating-point tensors of a call.
struct Operands {
  bool float32 = false;
  bool half = false;
  bool bfloat16 = false;
  bool untouchable = false;  // float64 or sparse: the call is left alone whole
  bool off_cpu = false;      // some tensor lives on an accelerator
  std::optional<at::ScalarType>
      written;  // the type of the tensor that the operator writes in place or as `out`

  constexpr bool any() const { return float32 || half || bfloat16; }
};

enum class Plan : std::uint8_t {
  kPass,         // call as it is; nested operators follow their own class
  kShield,       // call as it is, shield nested operators
  kCast,         // cast the operands to `target`, shield nested operators
  kFloatResult,  // leave the operands, ask for a float result through the dtype argument
  kEmulate,      // round the operands to `target`, compute in float, round the results
  kBan,          // an error that names the twin
};

struct Decision {
  Plan plan = Plan::kPass;
  at::ScalarType target = at::kFloat;
  constexpr bool operator==(const Decision&) const = default;
};

/// The part of a scope that decides.
struct ScopeRules {
  at::ScalarType low = at::kHalf;
  bool emulated = false;  // CPUs compute operators of `low` in float
  bool casts_operators =
      true;  // false: whole-model levels, which only choose how matrix operators compute
};

namespace detail {

constexpr bool holds_only(const Operands& seen, at::ScalarType low) {
  const bool other = low == at::kHalf ? seen.bfloat16 : seen.half;
  const bool wanted = low == at::kHalf ? seen.half : seen.bfloat16;
  return wanted && !other && !seen.float32;
}

constexpr Decision without_casts(Treatment kind) {
  if (kind == Treatment::kShield) return {Plan::kShield, at::kFloat};
  if (kind == Treatment::kBanned) return {Plan::kBan, at::kFloat};
  return {};
}

constexpr at::ScalarType widest(const Operands& seen) {
  if (seen.float32 || (seen.half && seen.bfloat16)) return at::kFloat;
  return seen.half ? at::kHalf : at::kBFloat16;
}

}  // namespace detail

/// Do all operands have the wanted type already?
constexpr bool nothing_to_cast(const Operands& seen, const Decision& decision) {
  if (decision.plan != Plan::kCast) return false;
  if (decision.target == at::kFloat) return !seen.half && !seen.bfloat16;
  return detail::holds_only(seen, decision.target);
}

/// @param kind                a conditional one has been resolved to kFloat or kShield before
/// @param is_matrix_operator  the default list computes it in the low type: such operators are the
/// ones emulated
/// @param has_dtype_argument  it can be asked for a float result instead of being given float
/// operands
constexpr Decision decide(Treatment kind, bool is_matrix_operator, bool has_dtype_argument,
                          const Operands& seen, const ScopeRules& rules) {
  if (seen.untouchable || !seen.any()) return {};
  const bool emulate = rules.emulated && !seen.off_cpu && !seen.written;
  if (!rules.casts_operators) {
    if (is_matrix_operator && emulate && detail::holds_only(seen, rules.low))
      return {Plan::kEmulate, rules.low};
    return {};
  }
  if (!casts(kind)) return detail::without_casts(kind);
  if (seen.written) return {Plan::kCast, *seen.written};
  if (kind == Treatment::kLow)
    return {emulate && is_matrix_operator ? Plan::kEmulate : Plan::kCast, rules.low};
  if (kind == Treatment::kPromote) return {Plan::kCast, detail::widest(seen)};
  // Of float operands the result is float without asking.
  const bool asks = has_dtype_argument && (seen.half || seen.bfloat16);
  return {asks ? Plan::kFloatResult : Plan::kCast, at::kFloat};
}

}  // namespace mezzo::casting
