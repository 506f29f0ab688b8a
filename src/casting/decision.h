// The treatment of one operator call's tensors: a pure function of the operator's treatment and
// of what the call holds.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "core/scalar_type.h"
#include "policy/treatment.h"

namespace mezzo::casting {

/// How far the layer may go with a call, by the memory of its floating-point tensors.
enum class Reach : std::uint8_t {
  kPlain,
  kSparse,  // some tensor is sparse: there are kernels for float
  kNone,    // float64, or a layout or device that the layer does not know: left alone whole
};

/// A set of low types.
class LowTypes {
 public:
  constexpr LowTypes() = default;
  static constexpr LowTypes of(DType low) {
    return LowTypes(static_cast<std::uint8_t>(1U << row_of(low).low_column));
  }
  /// The type alone if it is low, else none.
  static constexpr LowTypes of(at::ScalarType type) {
    const auto number = static_cast<std::size_t>(type);
    return LowTypes(number < kBits.size() ? kBits[number] : std::uint8_t{0});
  }

  constexpr bool any() const { return bits_ != 0; }
  constexpr bool one() const { return std::has_single_bit(bits_); }
  constexpr bool meets(LowTypes other) const { return (bits_ & other.bits_) != 0; }
  /// The first by its column; there is one.
  constexpr at::ScalarType first() const {
    return kTypes[static_cast<std::size_t>(std::countr_zero(bits_))];
  }
  constexpr LowTypes operator|(LowTypes other) const {
    return LowTypes(static_cast<std::uint8_t>(bits_ | other.bits_));
  }
  constexpr bool operator==(const LowTypes&) const = default;

 private:
  static_assert(kLowTypeCount <= 8);
  explicit constexpr LowTypes(std::uint8_t bits) : bits_(bits) {}

  static constexpr auto kTypes = [] {
    std::array<at::ScalarType, kLowTypeCount> types{};
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = scalar_type_of(kLowTypes[i]);
    return types;
  }();

  // Each type by itself, by LibTorch's numbers: every tensor of every listed call is looked up.
  static constexpr auto kBits = [] {
    std::array<std::uint8_t, dtypes::kByTorchNumber.size()> bits{};
    for (const DTypeRow& row : kDTypes) {
      if (row.low_column >= 0)
        bits[static_cast<std::uint8_t>(row.torch_number)] =
            static_cast<std::uint8_t>(1U << row.low_column);
    }
    return bits;
  }();

  std::uint8_t bits_ = 0;
};

/// The types that a call needs inside, whatever those of its tensors are.
enum class Inside : std::uint8_t {
  kOwnTypes,
  kFloat,  // it, or its derivative, sums many values or leaves the type: rounded once, at the end
  kFloatKept,  // as above, and a network that is low gets the result in float as well
};

/// The floating-point tensors of a call, summed up.
struct Operands {
  bool float32 = false;
  LowTypes low = {};
  Reach reach = Reach::kPlain;
  bool off_cpu = false;  // some tensor lives on an accelerator
  bool unheld = false;   // the low type cannot hold one of the call's scalars
  Inside inside = Inside::kOwnTypes;
  // The type of the tensor that the operator writes in place or as `out`.
  std::optional<at::ScalarType> written = std::nullopt;

  constexpr bool any() const { return float32 || low.any(); }
  constexpr bool any_low() const { return low.any(); }
  constexpr bool mixed() const { return float32 ? low.any() : low.any() && !low.one(); }
};

/// Types of single tensors that decide where a network's own types are followed. Asked for only if
/// the tensors of a call differ, or are low in an operator that has to run in float.
struct Leads {
  // The type of the weight among the operands, if there is one.
  std::optional<at::ScalarType> weight = std::nullopt;
  // The type of the first floating-point tensor.
  std::optional<at::ScalarType> first = std::nullopt;
  // Is there a float tensor, or a low one, behind the first?
  bool float_later = false;
  bool low_later = false;
};

enum class Plan : std::uint8_t {
  kPass,         // call as it is; nested operators follow their own class
  kShield,       // call as it is, shield nested operators
  kCast,         // cast the operands to `target`, shield nested operators
  kFloatResult,  // leave the operands, ask for a float result through the dtype argument
  kEmulate,      // round the operands to `target`, compute in float, round the results
  kInFloat,      // cast the operands to float, the results to `target`
  kNearest,      // give what is written the nearest values that it can hold in place of the scalars
  kBan,          // an error that names the twin
};

struct Decision {
  Plan plan = Plan::kPass;
  at::ScalarType target = at::kFloat;
  constexpr bool operator==(const Decision&) const = default;
};

/// The effect of a scope on operators.
enum class Mode : std::uint8_t {
  kOperators,   // operators follow the policy (O1, O4)
  kWholeModel,  // the network is low (O2, O3, O5): calls that would fail are mended, dtypes of all
                // others stay; matrix operators of an emulated low type compute in float
  kEmulationOnly,  // dtypes stay as they are; only matrix operators of an emulated low type compute
                   // in float
};

/// The part of a scope that decides.
struct ScopeRules {
  at::ScalarType low = at::kHalf;
  bool emulated = false;  // CPUs compute operators of `low` in float
  Mode mode = Mode::kOperators;

  constexpr bool casts_operators() const { return mode == Mode::kOperators; }
};

/// The part of the operator's row that no policy changes.
struct Traits {
  bool matrix = false;            // the default list computes it in the low type: emulated
  bool lacks_low = false;         // no 16-bit kernel
  bool one_type = false;          // throws if the operands' types differ
  bool float_statistics = false;  // a norm
  bool batch_norm = false;        // low parameters and statistics want an input of their type
  bool alone = false;             // neutral, and so is what it calls inside
  bool sums = false;              // see Operator
  LowTypes steep = {};            // see Operator: for which low types

  /// May its calls need float inside?
  constexpr bool may_need_float() const { return sums || steep.any(); }
};

namespace detail {

constexpr bool holds_only(const Operands& seen, at::ScalarType low) {
  return seen.low.any() && seen.low == LowTypes::of(low) && !seen.float32;
}

constexpr Decision without_casts(Treatment kind) {
  if (kind == Treatment::kShield) return {Plan::kShield, at::kFloat};
  if (kind == Treatment::kBanned) return {Plan::kBan, at::kFloat};
  return {};
}

constexpr at::ScalarType widest(const Operands& seen) {
  return seen.float32 || !seen.low.one() ? at::kFloat : seen.low.first();
}

// A written tensor keeps its type, through a float copy if only float can be computed with.
constexpr Decision into_written(const Traits& op, const Operands& seen) {
  const bool in_float = op.lacks_low || seen.reach == Reach::kSparse;
  return {Plan::kCast, in_float ? at::kFloat : *seen.written};
}

constexpr bool is_mixed_batch_norm(const Traits& op, const Operands& seen, const Leads& leads) {
  return op.batch_norm && seen.mixed() && leads.low_later &&
         (leads.float_later || leads.first == at::kFloat);
}

// Float inside: what is written keeps its type, and so does a result of low operands.
constexpr Decision in_float_inside(Treatment kind, const Operands& seen, at::ScalarType low) {
  if (kind == Treatment::kLow && !seen.written) return {Plan::kEmulate, low};
  const bool keeps_float = kind == Treatment::kFloat || seen.inside == Inside::kFloatKept;
  if (keeps_float || seen.written || seen.mixed()) return {Plan::kCast, at::kFloat};
  return {Plan::kInFloat, widest(seen)};
}

constexpr Decision unheld(const Operands& seen) {
  return {seen.written ? Plan::kNearest : Plan::kCast, at::kFloat};
}

constexpr bool emulates(const Operands& seen, const ScopeRules& rules) {
  return rules.emulated && !seen.off_cpu && !seen.written;
}

constexpr Decision in_product(const Operands& seen, const ScopeRules& rules, const Leads& leads) {
  if (seen.reach == Reach::kSparse) return {Plan::kInFloat, rules.low};
  if (!seen.mixed()) {
    if (emulates(seen, rules) && holds_only(seen, rules.low)) return {Plan::kEmulate, rules.low};
    return {};
  }
  const at::ScalarType target = seen.written ? *seen.written : leads.weight.value_or(widest(seen));
  const bool emulate = target == rules.low && emulates(seen, rules);
  return {emulate ? Plan::kEmulate : Plan::kCast, target};
}

}  // namespace detail

/// Do all operands have the wanted type already?
constexpr bool nothing_to_cast(const Operands& seen, const Decision& decision) {
  if (decision.plan != Plan::kCast) return false;
  if (decision.target == at::kFloat) return !seen.low.any();
  return detail::holds_only(seen, decision.target);
}

/// The small policy of networks that are low themselves: products take the type of their weight,
/// operators without a 16-bit kernel and the statistics of norms are computed in float, operators
/// of one type promote, products that the policy moves to float give float. No other dtype changes.
constexpr Decision decide_in_model(Treatment kind, const Traits& op, const Operands& seen,
                                   const ScopeRules& rules, const Leads& leads) {
  if (!seen.any_low()) return {};
  if (seen.unheld) return detail::unheld(seen);
  // Only by an override: what the default list says of products is low, or promotes.
  if (op.matrix && kind == Treatment::kFloat && !seen.written) return {Plan::kCast, at::kFloat};
  const bool needs_float = seen.inside != Inside::kOwnTypes;
  const bool product = op.matrix || (kind == Treatment::kLow && seen.mixed());
  if (product && !op.lacks_low) {
    if (needs_float && seen.written) return {Plan::kCast, at::kFloat};
    if (needs_float && !seen.mixed()) return {Plan::kEmulate, seen.low.first()};
    return detail::in_product(seen, rules, leads);
  }
  if (seen.inside == Inside::kFloatKept && !seen.written) return {Plan::kCast, at::kFloat};
  if (op.lacks_low || needs_float || (seen.reach == Reach::kSparse && casts(kind))) {
    if (seen.written || seen.mixed()) return {Plan::kCast, at::kFloat};
    return {Plan::kInFloat, detail::widest(seen)};
  }
  if (op.float_statistics && !seen.written)
    return {Plan::kInFloat, leads.first.value_or(rules.low)};
  if (detail::is_mixed_batch_norm(op, seen, leads))
    return {Plan::kInFloat, leads.first.value_or(at::kFloat)};
  if (op.one_type && seen.mixed())
    return {Plan::kCast, seen.written ? *seen.written : detail::widest(seen)};
  return {};
}

/// The class holds, and all operands are plain. It is inlined, since every listed call passes here.
C10_ALWAYS_INLINE constexpr Decision decide_usually(Treatment kind, const Traits& op,
                                                    bool has_dtype_argument, const Operands& seen,
                                                    const ScopeRules& rules) {
  if (!casts(kind)) return detail::without_casts(kind);
  if (seen.written) return detail::into_written(op, seen);
  if (kind == Treatment::kLow)
    return {op.matrix && detail::emulates(seen, rules) ? Plan::kEmulate : Plan::kCast, rules.low};
  if (kind == Treatment::kPromote) return {Plan::kCast, detail::widest(seen)};
  // The result of float operands is float without asking.
  const bool asks = has_dtype_argument && seen.any_low() && !op.lacks_low;
  return {asks ? Plan::kFloatResult : Plan::kCast, at::kFloat};
}

/// Rare cases of decide(): left alone whole, sparse, a scalar that the low type cannot hold, a call
/// that needs float inside, or a mode in which operators do not follow the policy.
constexpr Decision decide_rarely(Treatment kind, const Traits& op, bool has_dtype_argument,
                                 const Operands& seen, const ScopeRules& rules,
                                 const Leads& leads) {
  if (seen.reach == Reach::kNone || !seen.any()) return {};
  if (rules.mode == Mode::kWholeModel) return decide_in_model(kind, op, seen, rules, leads);
  if (!rules.casts_operators()) {
    const bool emulate = op.matrix && seen.reach == Reach::kPlain && detail::emulates(seen, rules);
    if (emulate && detail::holds_only(seen, rules.low)) return {Plan::kEmulate, rules.low};
    return {};
  }
  if (seen.unheld && kind != Treatment::kShield && kind != Treatment::kBanned)
    return detail::unheld(seen);
  if (kind == Treatment::kPass && detail::is_mixed_batch_norm(op, seen, leads))
    return {Plan::kInFloat, leads.first.value_or(at::kFloat)};
  const bool is_neutral = kind == Treatment::kPass || (kind == Treatment::kShield && op.alone);
  if (seen.inside != Inside::kOwnTypes && seen.any_low() && (casts(kind) || is_neutral))
    return detail::in_float_inside(kind, seen, rules.low);
  if (!casts(kind)) return detail::without_casts(kind);
  if (seen.reach == Reach::kSparse && !seen.written) return {Plan::kCast, at::kFloat};
  return decide_usually(kind, op, has_dtype_argument, seen, rules);
}

/// Has decide_rarely() to be asked?
constexpr bool is_rare(const Operands& seen, const ScopeRules& rules) {
  return seen.reach != Reach::kPlain || !seen.any() || !rules.casts_operators() || seen.unheld ||
         seen.inside != Inside::kOwnTypes;
}

/// Do the types of single tensors matter?
constexpr bool needs_leads(const Traits& op, const Operands& seen, const ScopeRules& rules) {
  if (op.batch_norm && seen.mixed()) return true;
  return rules.mode == Mode::kWholeModel && seen.any_low() && (seen.mixed() || op.float_statistics);
}

/// @param kind                a conditional one has been resolved to kFloat or kShield before
/// @param has_dtype_argument  it can be asked for a float result instead of being given float
/// operands
constexpr Decision decide(Treatment kind, const Traits& op, bool has_dtype_argument,
                          const Operands& seen, const ScopeRules& rules, const Leads& leads = {}) {
  const bool rare = is_rare(seen, rules) || (op.batch_norm && seen.mixed());
  return rare ? decide_rarely(kind, op, has_dtype_argument, seen, rules, leads)
              : decide_usually(kind, op, has_dtype_argument, seen, rules);
}

}  // namespace mezzo::casting
