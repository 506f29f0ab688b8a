// The unboxed kernel of one known operator: a template over LibTorch's own declaration of it.
#pragma once

#include <utility>

#include "casting/bindings.h"
#include "casting/cast.h"
#include "casting/gradient_sums.h"
#include "casting/held_scalars.h"
#include "casting/inner_float.h"
#include "casting/layer.h"
#include "casting/leads.h"
#include "casting/multiplication.h"
#include "casting/operands.h"
#include "casting/row.h"
#include "casting/scope.h"
#include "casting/shield.h"

namespace mezzo::casting {

namespace detail {

template <typename A>
inline constexpr bool is_dtype_argument =
    std::is_same_v<std::remove_cvref_t<A>, std::optional<at::ScalarType>>;

/// The operator's argument, or Float in place of an empty dtype.
template <bool kWantsFloat, typename A>
decltype(auto) or_float(A&& argument) {
  if constexpr (kWantsFloat) {
    return argument.has_value() ? argument : std::optional<at::ScalarType>(at::kFloat);
  } else {
    return std::forward<A>(argument);
  }
}

template <typename First, typename... Rest>
const First& first_of(const First& first, const Rest&...) {
  return first;
}

}  // namespace detail

/// Notices of a scope about the calls of an operator, whatever becomes of them.
template <typename Op>
struct Watch {
  template <typename... A>
  static void call(const A&...) {}
};

template <typename Op, typename Schema = typename Op::schema, bool kGuards = false>
struct Kernel;

template <typename Op, typename R, typename... A, bool kGuards>
struct Kernel<Op, R(A...), kGuards> {
  /// Which operator this is; set once at registration, before the key is ever switched on.
  static inline Row row;

  static constexpr bool kHasDtypeArgument = (detail::is_dtype_argument<A> || ...);

  static R call(c10::DispatchKeySet keys, A... arguments) {
    const Frame* frame = active_frame();
    if (frame == nullptr) return pass(keys, arguments...);
    if constexpr (GradientSums<Op>::kPossible) {
      R result = run(keys, frame, arguments...);
      const bool casts = frame->rules.mode != Mode::kEmulationOnly;
      if (casts && GradientSums<Op>::many(arguments...)) {
        take_gradient_in_float(result);
        if constexpr (requires { GradientSums<Op>::gradient_is_sparse(arguments...); }) {
          if (GradientSums<Op>::gradient_is_sparse(arguments...))
            add_up_sparse_gradient(result, detail::first_of(arguments...));
        }
      }
      return result;
    } else {
      return run(keys, frame, arguments...);
    }
  }

 private:
  C10_ALWAYS_INLINE static R run(c10::DispatchKeySet keys, const Frame* frame,
                                 std::add_lvalue_reference_t<A>... arguments) {
    Treatment kind =
        row.resolve(*frame, [&](std::size_t index) { return argument_text(index, arguments...); });
    Operands seen;
    if constexpr (kGuards) {
      Watch<Op>::call(arguments...);
      ScalarGuard guard;
      (guard.look(arguments), ...);
      const Traits& op = row.traits();
      if (kind == Treatment::kPass && !op.one_type && !op.may_need_float() && guard.all_held())
          [[likely]]
        return pass(keys, arguments...);
      (Operand<A>::look(seen, arguments), ...);
      seen.unheld = guard.unheld(seen, kind, frame->rules.low);
    } else {
      (Operand<A>::look(seen, arguments), ...);
    }
    if (row.traits().may_need_float()) seen.inside = inside_of(seen, arguments...);
    if constexpr (Multiplication<Op>::kPossible) {
      // Operands that are all of the low type are their own widest type.
      if (kind == Treatment::kLow && !detail::holds_only(seen, frame->rules.low) &&
          Multiplication<Op>::is_one(arguments...))
        kind = Treatment::kPromote;
    }
    const Decision decision =
        is_rare(seen, frame->rules)
            ? decide_rarely_with_leads(*frame, kind, seen, arguments...)
            : decide_usually(kind, row.traits(), kHasDtypeArgument, seen, frame->rules);
    if (decision.plan == Plan::kPass) return pass(keys, arguments...);
    if (decision.plan == Plan::kBan) row.refuse(*frame);
    const Shield shield;
    const c10::DispatchKeySet below = keys & frame->below;
    if constexpr (kHasDtypeArgument) {
      if (decision.plan == Plan::kFloatResult) {
        return Op::redispatch(below, detail::or_float<detail::is_dtype_argument<A>>(arguments)...);
      }
    }
    if (nothing_to_cast(seen, decision) || decision.plan == Plan::kShield)
      return Op::redispatch(below, arguments...);
    Casting casting(*frame, decision, row);
    return call_with(below, casting, decision, Operand<A>(arguments, casting)...);
  }

  static R pass(c10::DispatchKeySet keys, A... arguments) {
    return Op::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, layer_key()),
                          arguments...);
  }

  C10_NOINLINE static Inside inside_of(Operands& seen, const A&... arguments) {
    const Traits& op = row.traits();
    if (seen.mixed() && !op.one_type) {
      FloatWidth width;
      (Operand<A>::each(arguments, [&](const at::Tensor& tensor) { width.look(tensor); }), ...);
      seen.float32 = width.widens();
    }
    if (op.steep.meets(seen.low)) {
      if (const auto named = named_type(arguments...)) return inside_for(*named);
      const Inside inside = Steepness<Op>::of(arguments...);
      if (inside != Inside::kOwnTypes) return inside;
    }
    return op.sums && Sums<Op>::many(arguments...) ? Inside::kFloat : Inside::kOwnTypes;
  }

  C10_NOINLINE static Decision decide_rarely_with_leads(const Frame& frame, Treatment kind,
                                                        const Operands& seen, A... arguments) {
    Leads leads;
    if (needs_leads(row.traits(), seen, frame.rules)) {
      LeadFinder finder;
      std::size_t index = 0;
      bool is_weight = false;
      const auto look = [&](const at::Tensor& tensor) { finder.look(tensor, is_weight); };
      ((is_weight = row.is_weight(index++), Operand<A>::each(arguments, look)), ...);
      leads = finder.leads();
    }
    return decide_rarely(kind, row.traits(), kHasDtypeArgument, seen, frame.rules, leads);
  }

  // The way that the dispatcher would find is known unless a cast changed the kind of a tensor, as
  // that of a weight in inference mode does.
  static R call_cast(c10::DispatchKeySet below, const Casting& casting,
                     const Operand<A>&... operands) {
    return casting.same_keys() ? Op::redispatch(below, operands.get()...)
                               : Op::call(operands.get()...);
  }

  static R call_with(c10::DispatchKeySet below, const Casting& casting, const Decision& decision,
                     const Operand<A>&... operands) {
    if constexpr (std::is_same_v<R, at::Tensor&>) {
      at::Tensor& result = call_cast(below, casting, operands...);
      at::Tensor* written = &result;
      (finish(operands, decision, result, written), ...);
      return *written;
    } else if constexpr (std::is_reference_v<R> || std::is_void_v<R>) {
      return call_cast(below, casting, operands...);
    } else {
      R result = call_cast(below, casting, operands...);
      if (decision.plan == Plan::kEmulate || decision.plan == Plan::kInFloat)
        round_in_place(result, decision.target);
      return result;
    }
  }

  template <typename T>
  static void finish(const Operand<T>& operand, const Decision& decision, at::Tensor& result,
                     at::Tensor*& written) {
    if constexpr (std::is_same_v<T, at::Tensor&>) {
      if (!operand.owned.defined()) return;
      if (decision.plan == Plan::kNearest) {
        write_nearest(row.name(), operand.written, operand.owned);
      } else {
        write_back(operand.written, operand.owned);
      }
      if (&result == &operand.owned) written = &operand.written;
    }
  }
};

}  // namespace mezzo::casting
