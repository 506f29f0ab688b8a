// A call of an eager network with its argument and result types taken away: what every way of
// deployment works on.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/deploy_values.h"
#include "mezzo/export.h"

namespace mezzo::deploy::detail {

/// A network with the function of it that is called.
struct NetworkCall {
  /// The network.
  std::shared_ptr<torch::nn::Module> module;
  /// Runs the function; the values are its arguments.
  std::function<c10::IValue(const std::vector<c10::IValue>&)> run;
  /// Float values of low parameters, by the parameters' names.
  std::vector<std::pair<std::string, at::Tensor>> masters;
  /// Is it an initialized model, whose low tensors without masters are widened?
  bool is_initialized = false;
};

/// Calls `function` with the first values as arguments of these types.
template <typename Function, typename... Args>
c10::IValue call_with(const Function& function, const std::vector<c10::IValue>& values,
                      std::tuple<Args...>* /*types*/) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    std::tuple<Stored<Args>...> arguments{Argument<Stored<Args>>::from(values[i], i)...};
    if constexpr (std::is_void_v<decltype(function(std::get<i>(arguments)...))>) {
      function(std::get<i>(arguments)...);
      return c10::IValue();
    } else {
      return to_ivalue(function(std::get<i>(arguments)...));
    }
  }
  (std::make_index_sequence<sizeof...(Args)>());
}

template <typename Tuple, std::size_t... i>
std::tuple<std::tuple_element_t<i, Tuple>...>* first_of(std::index_sequence<i...>);

template <typename Network, typename... Args>
concept TakesArguments = requires(Network& net, Args&... args) {
  net.forward(args...);
};

/// Calls `forward` with as many arguments as there are values, if it takes so few.
template <typename Network, typename... Args>
struct ForwardCall {
  template <std::size_t n>
  using First = decltype(first_of<std::tuple<Args...>>(std::make_index_sequence<n>()));

  template <typename... Some>
  static consteval bool takes(std::tuple<Some...>* /*types*/) {
    return TakesArguments<Network, Stored<Some>...>;
  }

  template <std::size_t n>
  static c10::IValue run(Network& net, const std::vector<c10::IValue>& values,
                         std::size_t most = n) {
    if constexpr (!takes(First<n>(nullptr))) {
      raise_count(values.size(), n + 1, most);
    } else if (values.size() == n) {
      return call_with([&](auto&... args) -> decltype(auto) { return net.forward(args...); },
                       values, First<n>(nullptr));
    } else if constexpr (n == 0) {
      raise_count(values.size(), 0, most);
    } else {
      return run<n - 1>(net, values, most);
    }
  }
};

template <typename R, typename C, typename... Args>
std::tuple<Args...>* types_of(R (C::*)(Args...)) {
  return nullptr;
}
template <typename R, typename C, typename... Args>
std::tuple<Args...>* types_of(R (C::*)(Args...) const) {
  return nullptr;
}

template <typename Network, typename... Args>
c10::IValue call_forward(Network& net, const std::vector<c10::IValue>& values,
                         std::tuple<Args...>* /*types*/) {
  return ForwardCall<Network, Args...>::template run<sizeof...(Args)>(net, values);
}

/// Calls a `forward` that is a template, or has overloads, with n tensors.
template <std::size_t n, typename Network, typename... Tensors>
c10::IValue call_with_tensors(Network& net, const std::vector<c10::IValue>& values) {
  if (values.size() == n) {
    if constexpr (TakesArguments<Network, Tensors...>) {
      return call_with([&](auto&... args) -> decltype(auto) { return net.forward(args...); },
                       values, static_cast<std::tuple<Tensors...>*>(nullptr));
    }
  }
  if constexpr (n < 6) {
    return call_with_tensors<n + 1, Network, Tensors..., at::Tensor>(net, values);
  } else {
    raise_count(values.size(), 0, n);
  }
}

/// A `forward` whose parameters have one list of types; otherwise (overloads, templates) every
/// argument is a tensor, up to six of them.
template <typename Network>
c10::IValue call_network(Network& net, const std::vector<c10::IValue>& values) {
  if constexpr (requires { types_of(&Network::forward); }) {
    return call_forward(net, values, types_of(&Network::forward));
  } else {
    return call_with_tensors<0, Network>(net, values);
  }
}

/// An initialized model of amp, whose weights may be low and whose masters are wanted.
template <typename T>
concept InitializedModel = requires(const T& model) {
  model.named_masters();
  model.module();
};

template <typename T>
concept NetworkHolder = std::copy_constructible<T> && requires(T& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

template <typename T>
concept NetworkPointer =
    std::copy_constructible<T> && std::convertible_to<T, std::shared_ptr<torch::nn::Module>>;

template <typename Net>
std::shared_ptr<torch::nn::Module> module_behind(const Net& net) {
  if constexpr (NetworkPointer<Net>) {
    return net;
  } else {
    return net.is_empty() ? nullptr : net.ptr();
  }
}

/// The network itself: what the holder points at, or nn::AnyModule, which points at nothing.
template <typename Net>
decltype(auto) network_behind(Net& net) {
  if constexpr (requires { *net; }) {
    return *net;
  } else {
    return (net);
  }
}

/// The call of `forward`.
template <typename Net>
NetworkCall network_call(Net net) {
  if constexpr (InitializedModel<Net>) {
    NetworkCall call = network_call(net.module());
    for (const auto& item : net.named_masters())
      call.masters.emplace_back(item.key(), item.value());
    call.is_initialized = true;
    return call;
  } else {
    return {module_behind(net),
            [net](const std::vector<c10::IValue>& values) mutable {
              return call_network(network_behind(net), values);
            },
            {},
            false};
  }
}

/// The call of another member function, with all its arguments.
template <typename Net, typename Method>
NetworkCall network_call(Net net, Method method) {
  if constexpr (InitializedModel<Net>) {
    NetworkCall call = network_call(net.module(), method);
    for (const auto& item : net.named_masters())
      call.masters.emplace_back(item.key(), item.value());
    call.is_initialized = true;
    return call;
  } else {
    return {module_behind(net),
            [net, method](const std::vector<c10::IValue>& values) mutable {
              using Types = decltype(types_of(method));
              constexpr std::size_t count = std::tuple_size_v<std::remove_pointer_t<Types>>;
              if (values.size() != count) raise_count(values.size(), count, count);
              return call_with(
                  [&](auto&... args) -> decltype(auto) {
                    return (network_behind(net).*method)(args...);
                  },
                  values, Types(nullptr));
            },
            {},
            false};
  }
}

}  // namespace mezzo::deploy::detail

namespace mezzo::deploy {

/// A network that can be deployed: a module holder, a std::shared_ptr to a module, or an
/// amp::Model.
template <typename T>
concept Traceable =
    detail::InitializedModel<T> || detail::NetworkHolder<T> || detail::NetworkPointer<T>;

}  // namespace mezzo::deploy
