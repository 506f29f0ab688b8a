// The unboxed kernel of one known operator: a template over LibTorch's own declaration of it.
#pragma once

#include <utility>

#include "casting/cast.h"
#include "casting/layer.h"
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

}  // namespace detail

template <typename Op, typename Schema = typename Op::schema>
struct Kernel;

template <typename Op, typename R, typename... A>
struct Kernel<Op, R(A...)> {
  /// Which operator this is; set once at registration, before the key is ever switched on.
  static inline Row row;

  static constexpr bool kHasDtypeArgument = (detail::is_dtype_argument<A> || ...);

  static R call(c10::DispatchKeySet keys, A... arguments) {
    const Frame* frame = active_frame();
    if (frame == nullptr) return pass(keys, arguments...);
    Operands seen;
    (Operand<A>::look(seen, arguments), ...);
    const Treatment kind =
        row.resolve(*frame, [&](std::size_t index) { return argument_text(index, arguments...); });
    const Decision decision = decide(kind, row.is_matrix_operator(frame->rules.low),
                                     kHasDtypeArgument, seen, frame->rules);
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

 private:
  static R pass(c10::DispatchKeySet keys, A... arguments) {
    return Op::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, layer_key()),
                          arguments...);
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
    if constexpr (std::is_reference_v<R> || std::is_void_v<R>) {
      return call_cast(below, casting, operands...);
    } else {
      R result = call_cast(below, casting, operands...);
      if (decision.plan == Plan::kEmulate) round_in_place(result, decision.target);
      return result;
    }
  }
};

}  // namespace mezzo::casting
