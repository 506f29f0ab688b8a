// The entrance: models and optimizers go in, the same ones come out under an optimization level.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"
#include "mezzo/options.h"

namespace mezzo {
namespace amp::detail {

class Session;

/// A caller's optimizer: the torch optimizer, how to step what may be wrapped around it, and what
/// keeps it alive, if the caller shares it.
struct OptimizerRef {
  torch::optim::Optimizer* inner = nullptr;
  std::function<at::Tensor(torch::optim::Optimizer::LossClosure)> step = {};  // empty: inner's
  std::shared_ptr<const void> owner = nullptr;
};

struct Prepared {
  std::vector<std::shared_ptr<ModelState>> models;
  std::vector<std::shared_ptr<OptimizerState>> optimizers;
};

/// The common part of all forms of `initialize`; `wrapped` names an argument that is not a bare
/// network.
MEZZO_API Prepared prepare(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                           std::vector<OptimizerRef> optimizers, amp::Options options);
[[noreturn]] MEZZO_API void refuse_wrapped_model();

/// Something around a torch optimizer, such as LARC.
template <typename T>
concept WrappedOptimizer = !std::derived_from<T, torch::optim::Optimizer> && requires(T & wrapper) {
  { wrapper.inner() } -> std::same_as<torch::optim::Optimizer&>;
  wrapper.step();
};

template <typename T>
concept BareOptimizer = std::derived_from<T, torch::optim::Optimizer> || WrappedOptimizer<T>;

/// A pointer to an optimizer: a raw or smart pointer, or a reference wrapper.
template <typename T>
concept OptimizerPointer = !BareOptimizer<T> && requires(T & pointer) {
  requires BareOptimizer<std::remove_cvref_t<decltype(*pointer)>>;
};

template <typename T>
concept OptimizerReference = !BareOptimizer<T> && requires(T & wrapper) {
  requires BareOptimizer<std::remove_cvref_t<decltype(wrapper.get())>>;
  requires std::same_as<T,
                        std::reference_wrapper<std::remove_reference_t<decltype(wrapper.get())>>>;
};

template <typename T>
concept AnyOptimizer = BareOptimizer<T> || OptimizerPointer<T> || OptimizerReference<T>;

/// A network that something else already wraps: a Model, or a parallel wrapper.
template <typename T>
concept WrappedNetwork = !Network<T> && requires(const T& wrapper) {
  wrapper.module();
};

/// A null pointer's ref has no `inner`: `prepare` refuses it.
template <typename T>
OptimizerRef ref_of(T& optimizer) {
  using Held = std::remove_const_t<T>;
  if constexpr (OptimizerReference<Held>) {
    return ref_of(optimizer.get());
  } else if constexpr (OptimizerPointer<Held>) {
    if (optimizer == nullptr) return {};
    OptimizerRef ref = ref_of(*optimizer);
    if constexpr (std::copy_constructible<Held> && !std::is_pointer_v<Held>) ref.owner = optimizer;
    return ref;
  } else if constexpr (WrappedOptimizer<T>) {
    return {&optimizer.inner(), [&optimizer](const torch::optim::Optimizer::LossClosure& closure) {
              // A wrapper's step takes no closure; the loss is evaluated once before it.
              const at::Tensor loss = closure ? closure() : at::Tensor();
              optimizer.step();
              return loss;
            }};
  } else {
    return {&optimizer, {}};
  }
}

/// One network, a tuple of references to networks, or a vector: how to list them, and how to give
/// them back.
template <typename T>
struct ModelShape;

template <Network Net>
struct ModelShape<Net> {
  static void list(const Net& net, std::vector<std::shared_ptr<torch::nn::Module>>& into) {
    into.push_back(module_of(net));
  }
  static amp::Model<Net> wrap(const Net& net, std::span<const std::shared_ptr<ModelState>> states) {
    return amp::Model<Net>(net, states.front());
  }
};

template <typename... Nets>
requires(Network<std::remove_cvref_t<Nets>>&&...) struct ModelShape<std::tuple<Nets...>> {
  static void list(const std::tuple<Nets...>& nets,
                   std::vector<std::shared_ptr<torch::nn::Module>>& into) {
    std::apply([&](const auto&... net) { (into.push_back(module_of(net)), ...); }, nets);
  }
  static std::tuple<amp::Model<std::remove_cvref_t<Nets>>...> wrap(
      const std::tuple<Nets...>& nets, std::span<const std::shared_ptr<ModelState>> states) {
    return wrap_each(nets, states, std::index_sequence_for<Nets...>());
  }

 private:
  template <std::size_t... i>
  static std::tuple<amp::Model<std::remove_cvref_t<Nets>>...> wrap_each(
      const std::tuple<Nets...>& nets, std::span<const std::shared_ptr<ModelState>> states,
      std::index_sequence<i...>) {
    return {amp::Model<std::remove_cvref_t<Nets>>(std::get<i>(nets), states[i])...};
  }
};

template <Network Net>
struct ModelShape<std::vector<Net>> {
  static void list(const std::vector<Net>& nets,
                   std::vector<std::shared_ptr<torch::nn::Module>>& into) {
    for (const Net& net : nets) into.push_back(module_of(net));
  }
  static std::vector<amp::Model<Net>> wrap(const std::vector<Net>& nets,
                                           std::span<const std::shared_ptr<ModelState>> states) {
    std::vector<amp::Model<Net>> models;
    for (std::size_t i = 0; i < nets.size(); ++i) models.emplace_back(nets[i], states[i]);
    return models;
  }
};

/// As above, for optimizers.
template <typename T>
struct OptimizerShape;

template <AnyOptimizer T>
struct OptimizerShape<T> {
  template <typename Held>
  requires(!BareOptimizer<T> ||
           !std::is_const_v<Held>) static void list(Held& optimizer,
                                                    std::vector<OptimizerRef>& into) {
    into.push_back(ref_of(optimizer));
  }
  static amp::Optimizer wrap(std::span<const std::shared_ptr<OptimizerState>> states) {
    return amp::Optimizer(states.front());
  }
};

template <typename... Ts>
requires(AnyOptimizer<std::remove_cvref_t<Ts>>&&...) struct OptimizerShape<std::tuple<Ts...>> {
  template <typename Tuple>
  static void list(Tuple& optimizers, std::vector<OptimizerRef>& into) {
    std::apply([&](auto&... each) { (into.push_back(ref_of(each)), ...); }, optimizers);
  }
  static auto wrap(std::span<const std::shared_ptr<OptimizerState>> states) {
    return wrap_each(states, std::index_sequence_for<Ts...>());
  }

 private:
  template <std::size_t... i>
  static auto wrap_each(std::span<const std::shared_ptr<OptimizerState>> states,
                        std::index_sequence<i...>) {
    return std::tuple(amp::Optimizer(states[i])...);
  }
};

/// Vectors, and other lists that give a vector.
template <typename List>
struct OptimizerListShape {
  template <typename Optimizers>
  static void list(Optimizers& optimizers, std::vector<OptimizerRef>& into) {
    for (auto& each : optimizers) into.push_back(ref_of(each));
  }
  static std::vector<amp::Optimizer> wrap(std::span<const std::shared_ptr<OptimizerState>> states) {
    return {states.begin(), states.end()};
  }
};
template <AnyOptimizer T, typename A>
struct OptimizerShape<std::vector<T, A>> : OptimizerListShape<std::vector<T, A>> {};
template <AnyOptimizer T, std::size_t n>
struct OptimizerShape<std::array<T, n>> : OptimizerListShape<std::array<T, n>> {};

template <typename T>
concept Models = requires(const T& nets, std::vector<std::shared_ptr<torch::nn::Module>>& into) {
  ModelShape<T>::list(nets, into);
};

template <typename T>
concept Optimizers = requires(T& optimizers, std::vector<OptimizerRef>& into) {
  OptimizerShape<std::remove_cvref_t<T>>::list(optimizers, into);
};

/// A module that nothing shares: held by value, by a raw pointer or by a std::unique_ptr.
template <typename T>
concept UnsharedModule = std::derived_from<T, torch::nn::Module> ||
    (!Network<T> && requires(T & pointer) {
      requires std::derived_from<std::remove_cvref_t<decltype(*pointer)>, torch::nn::Module>;
    });

template <typename T>
concept OptionsLike =
    std::same_as<std::remove_cvref_t<T>, amp::Options> || std::convertible_to<T, std::string>;

/// A level alone in the place of the options: `initialize(net, sgd, "O2")`. No default, so that
/// `{}` stays the options'.
class LevelName {
 public:
  template <typename T>
  requires std::convertible_to<T, std::string> LevelName(T&& name) : name_(std::forward<T>(name)) {}
  amp::Options options() const {
    amp::Options options;
    options.opt_level = name_;
    return options;
  }

 private:
  std::string name_;
};

/// A braced list of optimizers: `initialize(net, {adam, sgd})`.
class OptimizerList {
 public:
  template <typename... Ts>
  requires(sizeof...(Ts) > 0 &&
           (std::convertible_to<Ts, std::reference_wrapper<torch::optim::Optimizer>> && ...))
      OptimizerList(Ts&&... each)
      : list{std::reference_wrapper<torch::optim::Optimizer>(each)...} {}

  std::vector<std::reference_wrapper<torch::optim::Optimizer>> list;
};

template <typename>
inline constexpr bool kNever = false;

template <typename Net>
void refuse_unshared_module() {
  static_assert(kNever<Net>,
                "mezzo: initialize keeps the network alive, so it takes a TORCH_MODULE holder or a "
                "std::shared_ptr: write `auto net = std::make_shared<Net>(...)` in place of "
                "`Net net(...)`, and `net->` in place of `net.`");
}

}  // namespace amp::detail

namespace amp {

/// Puts networks and their optimizers under an optimization level.
///
/// `nets` is a module holder, a std::shared_ptr to a module, std::tie(...) of such, or a vector;
/// `optimizers` is a torch::optim optimizer, something around one (`inner()` and `step()`),
/// a pointer to one (a std::shared_ptr is kept alive), std::tie(...), a vector or an array of
/// these, or a braced list of optimizers, which gives a vector. A level's name may stand for the
/// options: `initialize(net, sgd, "O2")`. The result has the same shapes. Networks are changed in
/// place and keep their identity, and so do parameters; optimizers must outlive the handles. All
/// optimizers of one call share its `num_losses` scales.
///
/// Throws ConfigError, and has changed nothing, if an option contradicts the level, a network is
/// half already or already initialized or wrapped, or an optimizer owns no parameter of the
/// networks.
template <detail::Models Nets, detail::Optimizers Optims>
auto initialize(Nets nets, Optims&& optimizers, Options options = {}) {
  using ModelShape = detail::ModelShape<Nets>;
  using OptimizerShape = detail::OptimizerShape<std::remove_cvref_t<Optims>>;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  ModelShape::list(nets, modules);
  std::vector<detail::OptimizerRef> refs;
  OptimizerShape::list(optimizers, refs);
  const detail::Prepared prepared =
      detail::prepare(std::move(modules), std::move(refs), std::move(options));
  return std::pair(ModelShape::wrap(nets, prepared.models),
                   OptimizerShape::wrap(prepared.optimizers));
}

/// As above, without an optimizer: casts, no masters.
template <detail::Models Nets>
auto initialize(Nets nets, Options options = {}) {
  using ModelShape = detail::ModelShape<Nets>;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  ModelShape::list(nets, modules);
  const detail::Prepared prepared = detail::prepare(std::move(modules), {}, std::move(options));
  return ModelShape::wrap(nets, prepared.models);
}

/// @cond
template <detail::Models Nets>
auto initialize(Nets nets, detail::OptimizerList optimizers, Options options = {}) {
  return initialize(std::move(nets), optimizers.list, std::move(options));
}
template <detail::Models Nets, detail::Optimizers Optims>
auto initialize(Nets nets, Optims&& optimizers, const detail::LevelName& level) {
  return initialize(std::move(nets), optimizers, level.options());
}
template <detail::Models Nets>
auto initialize(Nets nets, const detail::OptimizerList& optimizers,
                const detail::LevelName& level) {
  return initialize(std::move(nets), optimizers.list, level.options());
}
template <detail::Models Nets>
auto initialize(Nets nets, const detail::LevelName& level) {
  return initialize(std::move(nets), level.options());
}

// Arguments that cannot work are one sentence of the compiler.
template <detail::UnsharedModule Net, typename Optims>
std::pair<Model<std::shared_ptr<torch::nn::Module>>, Optimizer> initialize(const Net&, Optims&&,
                                                                           const Options& = {}) {
  detail::refuse_unshared_module<Net>();
  return {};
}
template <detail::UnsharedModule Net, typename Optims>
std::pair<Model<std::shared_ptr<torch::nn::Module>>, Optimizer> initialize(
    const Net&, Optims&&, const detail::LevelName&) {
  detail::refuse_unshared_module<Net>();
  return {};
}
template <detail::UnsharedModule Net>
Model<std::shared_ptr<torch::nn::Module>> initialize(const Net&, const Options& = {}) {
  detail::refuse_unshared_module<Net>();
  return {};
}
template <detail::Models Nets, typename Optims>
requires(!detail::Optimizers<Optims> &&
         !detail::OptionsLike<Optims>) std::pair<Nets, Optimizer> initialize(const Nets& nets,
                                                                             Optims&&,
                                                                             const Options& = {}) {
  static_assert(detail::kNever<Optims>,
                "mezzo: the second argument of initialize is an optimizer of torch::optim or "
                "mezzo::optim, something around one with `inner()` and `step()`, a pointer to one, "
                "std::tie(...) or a vector of these");
  return {nets, Optimizer()};
}

// A network that is wrapped already is an error that says so.
template <detail::WrappedNetwork Wrapper, detail::Optimizers Optims>
std::pair<Model<std::remove_cvref_t<decltype(std::declval<Wrapper&>().module())>>, Optimizer>
initialize(const Wrapper&, Optims&&, const Options& = {}) {
  detail::refuse_wrapped_model();
}
template <detail::WrappedNetwork Wrapper>
Model<std::remove_cvref_t<decltype(std::declval<Wrapper&>().module())>> initialize(
    const Wrapper&, const Options& = {}) {
  detail::refuse_wrapped_model();
}
/// @endcond

}  // namespace amp
}  // namespace mezzo
