// A network under an optimization level: called like the network, with the level's casts.
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "mezzo/containers.h"
#include "mezzo/export.h"
#include "mezzo/options.h"

namespace mezzo {
namespace amp::detail {

class ModelState;

/// Inside it a model runs: operators, arguments and results follow the level. Lives on the stack of
/// the calling thread.
class MEZZO_API CallGuard {
 public:
  explicit CallGuard(ModelState& state);
  ~CallGuard();
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  /// Says, once a type, that tensors in it leave uncast.
  void tell_unreached(const std::type_info& type) const;

  amp::TensorCast inputs;
  amp::TensorCast outputs;

 private:
  struct Scopes;
  ModelState& state_;
  std::unique_ptr<Scopes> scopes_;
};

/// Is the next call of a model kept, so that a skipped step can be explained
/// (Options::explain_skips)?
MEZZO_API bool keeps_calls(const ModelState& state);

/// Keeps the call that was just made: how to make it again, and the tensors in its results.
MEZZO_API void keep_call(ModelState& state, std::function<std::vector<at::Tensor>()> again,
                         const std::vector<at::Tensor>& results);

/// The base of every Model, whatever its network: the part that needs no template.
class MEZZO_API ModelHandle {
 public:
  ModelHandle() = default;
  ModelHandle(std::shared_ptr<ModelState> state, std::shared_ptr<torch::nn::Module> module);

  /// The properties in force: the level's row with the caller's changes.
  const amp::Properties& properties() const;

  std::vector<at::Tensor> parameters(bool recurse = true) const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const;
  std::vector<at::Tensor> buffers(bool recurse = true) const;
  torch::OrderedDict<std::string, at::Tensor> named_buffers(bool recurse = true) const;

  /// As of torch::nn::Module; either makes low-precision copies of the weights anew at their next
  /// use.
  void train(bool on = true) const;
  void eval() const;
  bool is_training() const;

  /// The float masters behind low-precision weights, by the weights' names and in their order; for
  /// those who write them, which publish_masters() then rounds into the weights. Gradients that
  /// wait for a `step` to be unscaled (Options::defer_unscale) are unscaled now.
  torch::OrderedDict<std::string, at::Tensor> named_masters() const;
  void publish_masters() const;

  /// The scale of each loss with what moves it, on the host: a row of three doubles (the scale,
  /// backward passes since it last moved, overflows in a row at its floor). Waits for a device that
  /// keeps them.
  at::Tensor loss_scales() const;
  /// Sets what loss_scales() of the same call of `initialize` gave on another rank.
  void set_loss_scales(const at::Tensor& scales) const;

  /// Clears the gradients of the weights, and of their masters.
  void zero_grad(bool set_to_none = true) const;

  /// Moves weights, buffers, masters, gradients and the state of their optimizers to another
  /// device.
  void to(at::Device device, bool non_blocking = false) const;

  /// False for a handle that `initialize` has not given yet: every other member throws ConfigError.
  explicit operator bool() const noexcept { return state_ != nullptr; }

  /// For the library itself.
  const std::shared_ptr<ModelState>& state() const;

 private:
  torch::nn::Module& module() const;

  std::shared_ptr<ModelState> state_;
  std::shared_ptr<torch::nn::Module> module_;
};

/// Prints the network as LibTorch prints it.
MEZZO_API std::ostream& operator<<(std::ostream& out, const ModelHandle& model);

/// A module holder (TORCH_MODULE, nn::Sequential) or a std::shared_ptr to a module.
template <typename T>
concept ModuleHolder = requires(T& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
}
&&std::copy_constructible<T>;

template <typename T>
concept ModulePointer = std::copy_constructible<T> &&
    std::convertible_to<T, std::shared_ptr<torch::nn::Module>> && requires {
  typename T::element_type;
};

template <typename T>
concept Network = ModuleHolder<T> || ModulePointer<T>;

template <typename Net>
std::shared_ptr<torch::nn::Module> module_of(const Net& net) {
  if constexpr (ModulePointer<Net>) {
    return net;
  } else {
    return net.is_empty() ? nullptr : net.ptr();
  }
}

/// The network itself: what the holder points at, or nn::AnyModule, which points at nothing.
template <typename Net>
decltype(auto) bare_network(Net& net) {
  if constexpr (requires { *net; }) {
    return *net;
  } else {
    return (net);
  }
}

}  // namespace amp::detail

namespace amp {

/// The network that `initialize` was given, under its level. A cheap handle: copies share, and all
/// members are const.
///
/// Calls cast floating arguments, operators and results as the level says, through containers of
/// any nesting. The handle keeps what `initialize` did in force; when the last handle of a call is
/// gone, weights get their original type back with the masters' values. A default-constructed
/// handle is empty, for members that are assigned later.
///
/// A variable that a call fills (`std::vector<at::Tensor>& features`) is filled at every level,
/// also where the call throws; what the call made comes in the type that it was made in. A tensor
/// that the call left alone stays the caller's own.
///
/// Threads: calls may run in several threads at once where the network itself allows it.
template <typename Net>
class Model : public detail::ModelHandle {
 public:
  /// The module class behind the holder.
  using Impl = std::remove_cvref_t<decltype(detail::bare_network(std::declval<Net&>()))>;

  Model() = default;
  Model(Net net, std::shared_ptr<detail::ModelState> state)
      : ModelHandle(std::move(state), detail::module_of(net)), net_(std::move(net)) {}

  /// The network's forward, with the level's casts; default arguments of `forward` work.
  template <typename... Args>
  auto operator()(Args&&... args) const {
    if constexpr ((detail::kCanBeRepeated<Args> && ...)) {
      using Result = decltype(run_forward(std::forward<Args>(args)...));
      if constexpr (holds_tensors<Result> && std::is_copy_constructible_v<Result>) {
        if (detail::keeps_calls(*state())) return run_kept(std::forward<Args>(args)...);
      }
    }
    return run_forward(std::forward<Args>(args)...);
  }

  /// As above.
  template <typename... Args>
  auto forward(Args&&... args) const {
    return (*this)(std::forward<Args>(args)...);
  }

  /// Any other member function under the same casts: `model.call(&NetImpl::encode, x)`.
  template <typename Method, typename... Args>
  requires std::is_member_function_pointer_v<Method>
  auto call(Method method, Args&&... args) const {
    return run(
        [&](auto&&... cast) -> decltype(auto) {
          return (network().*method)(std::forward<decltype(cast)>(cast)...);
        },
        std::forward<Args>(args)...);
  }

  /// Anything that takes the bare network, for overloads and default arguments:
  /// `model.call([&](NetImpl& net) { ... })`. Tensors that the callable captures are its own
  /// business; further arguments are cast and handed to it.
  template <typename Callable, typename... Args>
  requires(!std::is_member_function_pointer_v<std::remove_cvref_t<Callable>>) auto call(
      Callable&& callable, Args&&... args) const {
    return run(
        [&](auto&&... cast) -> decltype(auto) {
          return callable(network(), std::forward<decltype(cast)>(cast)...);
        },
        std::forward<Args>(args)...);
  }

  /// `model->forward(x)`, `model->train()`: the wrapper's own members.
  const Model* operator->() const noexcept { return this; }

  /// The bare network: calls through it are not cast.
  Net& module() const {
    state();  // throws if the handle is empty
    return *net_;
  }

 private:
  Impl& network() const { return detail::bare_network(*net_); }

  template <typename... Args>
  auto run_forward(Args&&... args) const {
    return run(
        [this](auto&&... cast) -> decltype(auto) {
          return network().forward(std::forward<decltype(cast)>(cast)...);
        },
        std::forward<Args>(args)...);
  }

  /// As above, and the call is kept. It holds the network, but not this handle's state, which holds
  /// the call.
  template <typename... Args>
  auto run_kept(Args&&... args) const {
    std::tuple<std::remove_cvref_t<Args>...> given(args...);
    auto result = run_forward(std::forward<Args>(args)...);
    detail::keep_call(
        *state(),
        [net = *net_, weak = std::weak_ptr<detail::ModelState>(state()), given = std::move(given)] {
          const Model model(net, weak.lock());
          auto own = given;
          return detail::tensors_in(std::apply(
              [&](auto&... each) { return model.run_forward(static_cast<Args&&>(each)...); }, own));
        },
        detail::tensors_in(result));
    return result;
  }

  template <typename Function, typename... Args>
  auto run(Function&& function, Args&&... args) const {
    detail::CallGuard guard(*state());
    std::tuple<detail::CastArgument<Args>...> cast{
        detail::CastArgument<Args>(std::forward<Args>(args), guard.inputs)...};
    const auto invoke = [&](auto&... argument) -> decltype(auto) {
      return function(argument.get()...);
    };
    using Result = decltype(std::apply(invoke, cast));
    if constexpr (std::is_void_v<Result>) {
      std::apply(invoke, cast);
    } else if constexpr (holds_tensors<Result>) {
      std::remove_cvref_t<Result> result = std::apply(invoke, cast);
      tell_unreached<Result>(guard);
      if (!guard.outputs.is_active()) return result;
      return cast_tensors(result, guard.outputs);
    } else {
      tell_unreached<Result>(guard);
      return std::remove_cvref_t<Result>(std::apply(invoke, cast));
    }
  }

  template <typename Result>
  static void tell_unreached(const detail::CallGuard& guard) {
    const std::type_info* type = detail::unreached_in<std::remove_cvref_t<Result>>();
    if (type != nullptr && guard.outputs.is_active()) guard.tell_unreached(*type);
  }

  mutable std::optional<Net> net_;
};

}  // namespace amp
}  // namespace mezzo
