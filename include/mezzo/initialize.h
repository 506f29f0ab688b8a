// The entrance: models and optimizers go in, the same ones come out under an optimization level.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"
#include "mezzo/options.h"

namespace mezzo {
namespace detail {

class Session;

/// A caller's optimizer: the torch optimizer, and how to step what may be wrapped around it.
struct OptimizerRef {
  torch::optim::Optimizer* inner = nullptr;
  std::function<at::Tensor(torch::optim::Optimizer::LossClosure)> step = {};  // empty: inner's
};

struct Prepared {
  std::vector<std::shared_ptr<ModelState>> models;
  std::vector<std::shared_ptr<OptimizerState>> optimizers;
};

/// What all forms of `initialize` do; `wrapped` names an argument that is not a bare network.
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
concept AnyOptimizer = std::derived_from<T, torch::optim::Optimizer> || WrappedOptimizer<T>;

/// A network that something else already wraps: a Model, or a parallel wrapper.
template <typename T>
concept WrappedNetwork = !Network<T> && requires(const T& wrapper) {
  wrapper.module();
};

template <typename T>
OptimizerRef ref_of(T& optimizer) {
  if constexpr (WrappedOptimizer<T>) {
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

/// The same for optimizers.
template <typename T>
struct OptimizerShape;

template <AnyOptimizer T>
struct OptimizerShape<T> {
  static void list(T& optimizer, std::vector<OptimizerRef>& into) {
    into.push_back(ref_of(optimizer));
  }
  static amp::Optimizer wrap(std::span<const std::shared_ptr<OptimizerState>> states) {
    return amp::Optimizer(states.front());
  }
};

template <AnyOptimizer... Ts>
struct OptimizerShape<std::tuple<Ts&...>> {
  static void list(const std::tuple<Ts&...>& optimizers, std::vector<OptimizerRef>& into) {
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

template <>
struct OptimizerShape<std::vector<std::reference_wrapper<torch::optim::Optimizer>>> {
  using List = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;
  static void list(const List& optimizers, std::vector<OptimizerRef>& into) {
    for (torch::optim::Optimizer& each : optimizers) into.push_back({&each, {}});
  }
  static std::vector<amp::Optimizer> wrap(std::span<const std::shared_ptr<OptimizerState>> states) {
    return {states.begin(), states.end()};
  }
};

template <typename T>
concept Models = requires(const T& nets, std::vector<std::shared_ptr<torch::nn::Module>>& into) {
  ModelShape<T>::list(nets, into);
};

template <typename T>
concept Optimizers = requires(T& optimizers, std::vector<OptimizerRef>& into) {
  OptimizerShape<std::remove_cvref_t<T>>::list(optimizers, into);
};

}  // namespace detail

namespace amp {

/// Puts networks and their optimizers under an optimization level.
///
/// `nets` is a module holder, a std::shared_ptr to a module, std::tie(...) of such, or a vector;
/// `optimizers` is a torch::optim optimizer, something around one (`inner()` and `step()`),
/// std::tie(...), or a vector of reference wrappers. The result has the same shapes. Networks are
/// changed in place and keep their identity, and so do parameters; optimizers must outlive the
/// handles. All optimizers of one call share its `num_losses` scales.
///
/// Throws ConfigError, and has changed nothing, where an option contradicts the level, a network is
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

/// The same without an optimizer: casts, no masters.
template <detail::Models Nets>
auto initialize(Nets nets, Options options = {}) {
  using ModelShape = detail::ModelShape<Nets>;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  ModelShape::list(nets, modules);
  const detail::Prepared prepared = detail::prepare(std::move(modules), {}, std::move(options));
  return ModelShape::wrap(nets, prepared.models);
}

/// @cond
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
