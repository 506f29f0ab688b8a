// Scopes in which operators run in the type that suits them, and functions that follow such a
// scope.
//
//   mezzo::amp::Autocast scope(mezzo::Policy::defaults(at::kBFloat16));
//   auto y = torch::nn::functional::linear(x, w);   // computed in bfloat16
//
// A Model (amp.h) opens such a scope for each call; open one yourself around code outside a model.
// Scopes are objects on the stack, belong to their thread and nest, the inner one rules. A backward
// pass that starts inside a scope runs with casts off: its operators get the types that the forward
// pass chose. LibTorch's own autocast is left alone.
//
// A float leaf that wants a gradient, a weight, is cast once for many uses:
// - Of the weights that an Optimizer (amp.h) steps, the low-precision copies are renewed by its
//   step(), and kept until then.
// - Of others, a copy lasts until the thread leaves its outermost scope, once a gradient or a
//   recorded graph has shown that they are trained; before, until LibTorch's version counter moves.
//   Leave the scope between the uses of two values: optim::SGD and writes through data() do not
//   move that counter.
// - invalidate_casts() announces writes that nothing else shows.
// Hooks on a view of a weight, and backward passes of functions that made it, act as without a
// scope. The one exception is the plain transpose, weight.t(), that nn::Linear takes: its gradient
// goes straight to the weight, so that a hook must be there before the operator uses it, and
// autograd::grad() with respect to the transpose itself finds nothing (a hook or retain_grad() on
// it, or weight.t().view_as() in its place, mends that).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "mezzo/containers.h"
#include "mezzo/export.h"
#include "mezzo/policy.h"

namespace mezzo::casting {
class Scope;
class Disabled;
class WeightKeeping;
struct ScopeState;
}  // namespace mezzo::casting

namespace mezzo::amp {

/// While it lives, listed operators of this thread cast their floating-point arguments as the
/// policy says. float64 tensors, integers and devices other than CPU and CUDA are never touched; an
/// operator with a float64 argument is left alone whole. Destroy scopes in the reverse order of
/// their construction, on the thread that made them.
class MEZZO_API Autocast {
 public:
  /// Throws UnsupportedError if other libraries have taken every dispatch key that casts could
  /// live on.
  [[nodiscard]] explicit Autocast(const Policy& policy);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// The policy in force on this thread; nothing outside scopes, inside DisableCasts, and where
  /// only a whole-model level runs.
  static std::optional<Policy> current();

 private:
  std::unique_ptr<casting::Scope> scope_;
};

/// While it lives, this thread casts nothing. Nests with itself and with Autocast: a scope opened
/// inside it casts again.
class MEZZO_API DisableCasts {
 public:
  [[nodiscard]] DisableCasts();
  ~DisableCasts();
  DisableCasts(const DisableCasts&) = delete;
  DisableCasts& operator=(const DisableCasts&) = delete;

 private:
  std::unique_ptr<casting::Disabled> disabled_;
};

/// After writes to these weights that LibTorch cannot see, through data() or a pointer: their
/// low-precision copies are made anew at the next use. Others are left alone. Thread-safe.
MEZZO_API void invalidate_casts(at::TensorList weights);

/// A scope, to be carried into another thread: threads start without one.
///
///   Snapshot snapshot;                                     // here
///   std::thread worker(snapshot.wrap([&] { ... }));        // there, under the same policy
///
/// A cheap value; copies share. Outlives the scope that it was taken in.
class MEZZO_API Snapshot {
 public:
  /// Takes the innermost scope of this thread, or its absence.
  Snapshot();
  Snapshot(const Snapshot&);
  Snapshot& operator=(const Snapshot&);
  ~Snapshot();

  /// Opens the scope on the thread that makes it, until it is destroyed.
  class MEZZO_API Guard {
   public:
    [[nodiscard]] explicit Guard(const Snapshot&);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::unique_ptr<casting::WeightKeeping> keeping_;
    std::unique_ptr<casting::Scope> scope_;
    std::unique_ptr<casting::Disabled> disabled_;
  };

  /// The function, run inside the scope wherever it is called.
  template <typename F>
  auto wrap(F function) const {
    return [snapshot = *this,
            function = std::move(function)](auto&&... arguments) mutable -> decltype(auto) {
      const Guard guard(snapshot);
      return function(std::forward<decltype(arguments)>(arguments)...);
    };
  }

 private:
  std::shared_ptr<const casting::ScopeState> state_;
};

}  // namespace mezzo::amp

namespace mezzo::amp::detail {

/// The low type of the scope in force; nothing if no operator is cast now.
MEZZO_API std::optional<at::ScalarType> active_low_type();

/// Collects the widest floating type among tensors.
struct MEZZO_API WidestType {
  std::optional<at::ScalarType> type;
  void look(const at::Tensor& tensor);
};

template <typename T>
void look_for_widest(WidestType& widest, T&& value) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::is_base_of_v<at::Tensor, Value>) {
    widest.look(value);
  } else if constexpr (Castable<Value>::value && requires {
                         value.begin();
                         value.end();
                       }) {
    for (auto& item : value) look_for_widest(widest, item);
  } else if constexpr (Castable<Value>::value && requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) look_for_widest(widest, *value);
  }
}

/// Calls the function with its arguments cast; they live until it has returned.
template <typename F, typename... Args>
decltype(auto) call_cast(F& function, const TensorCast& cast, Args&&... arguments) {
  return function(CastArgument<Args>(std::forward<Args>(arguments), cast).get()...);
}

/// To the low type; inside the function operators follow the scope.
struct CastToLow {
  template <typename F, typename... Args>
  static decltype(auto) call(F& function, Args&&... arguments) {
    const TensorCast cast{active_low_type().value_or(at::ScalarType::Undefined)};
    return call_cast(function, cast, std::forward<Args>(arguments)...);
  }
};

/// To float, and casts are off inside the function.
struct CastToFloat {
  template <typename F, typename... Args>
  static decltype(auto) call(F& function, Args&&... arguments) {
    const bool active = active_low_type().has_value();
    const TensorCast cast{active ? at::kFloat : at::ScalarType::Undefined};
    std::optional<amp::DisableCasts> off;
    if (active) off.emplace();
    return call_cast(function, cast, std::forward<Args>(arguments)...);
  }
};

/// To the widest type among the arguments, and casts are off inside the function.
struct CastToWidest {
  template <typename F, typename... Args>
  static decltype(auto) call(F& function, Args&&... arguments) {
    const bool active = active_low_type().has_value();
    WidestType widest;
    if (active) (look_for_widest(widest, arguments), ...);
    const TensorCast cast{widest.type.value_or(at::ScalarType::Undefined)};
    std::optional<amp::DisableCasts> off;
    if (active) off.emplace();
    return call_cast(function, cast, std::forward<Args>(arguments)...);
  }
};

/// A function whose arguments are cast first. It is called as the function itself can be: through
/// const, if that is const.
template <typename Rule, typename F>
class CastFunction {
 public:
  explicit CastFunction(F function) : function_(std::move(function)) {}

  template <typename... Args>
  decltype(auto) operator()(Args&&... arguments) {
    return Rule::call(function_, std::forward<Args>(arguments)...);
  }
  template <typename... Args>
  decltype(auto) operator()(Args&&... arguments) const {
    return Rule::call(function_, std::forward<Args>(arguments)...);
  }

 private:
  F function_;
};

}  // namespace mezzo::amp::detail

namespace mezzo::amp {

/// The function, with its tensor arguments (in containers too) cast to the low type wherever a
/// scope is in force. Inside it operators follow the scope. Without a scope it is the function
/// itself.
template <typename F>
auto half_function(F function) {
  return detail::CastFunction<detail::CastToLow, F>(std::move(function));
}

/// The function, run in float wherever a scope is in force: its tensor arguments are cast to float
/// and casts are off inside it.
template <typename F>
auto float_function(F function) {
  return detail::CastFunction<detail::CastToFloat, F>(std::move(function));
}

/// The function, run in the widest floating type among its tensor arguments wherever a scope is in
/// force: half and bfloat16 together, or either with float, give float. Casts are off inside it.
template <typename F>
auto promote_function(F function) {
  return detail::CastFunction<detail::CastToWidest, F>(std::move(function));
}

/// Gives an operator of the dispatcher ("my_ops::roi_align", or one of LibTorch's) a class in every
/// policy that is made from now on; the last registration of an operator holds. Thread-safe; meant
/// for start-up. Throws Error if the dispatcher has no such operator.
MEZZO_API void register_half_function(const std::string& op);
/// As above, for operators that run in float32.
MEZZO_API void register_float_function(const std::string& op);

/// As above, for operators whose tensors must agree: they run in the widest of their types.
MEZZO_API void register_promote_function(const std::string& op);

/// Applies the torch::autograd::Function F with its tensor arguments cast to `type` and casts off:
/// its forward runs in that type, and so does its backward, which receives gradients of the
/// outputs' type. The same without any scope.
/// @return what F::apply returns
template <class F, class... Args>
auto custom_function(at::ScalarType type, Args&&... arguments) {
  const DisableCasts off;
  const TensorCast cast{type};
  return F::apply(detail::CastArgument<Args>(std::forward<Args>(arguments), cast).get()...);
}

}  // namespace mezzo::amp
