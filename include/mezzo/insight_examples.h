// Calls of a network on examples of any kind: what lint() is given beside the network.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/deploy_call.h"
#include "mezzo/export.h"
#include "mezzo/model.h"

namespace mezzo::insight {

/// Inputs of the network, each for one call of its forward; where that takes several tensors, the
/// arguments of one call.
using Examples = std::vector<at::Tensor>;

/// @cond
namespace detail {

/// A list in braces: tensors as in Examples, the arguments of one call where some are no tensors,
/// or lists of arguments.
class BracedExamples {
 public:
  BracedExamples() = default;
  BracedExamples(std::initializer_list<at::Tensor> tensors) : tensors_(tensors) {}
  BracedExamples(std::initializer_list<c10::IValue> values) : calls_{values} {}
  BracedExamples(std::initializer_list<std::vector<c10::IValue>> calls) : calls_(calls) {}

  const Examples& tensors() const noexcept { return tensors_; }
  const std::vector<std::vector<c10::IValue>>& calls() const noexcept { return calls_; }

 private:
  Examples tensors_;
  std::vector<std::vector<c10::IValue>> calls_;
};

/// The module class behind a holder, a pointer, a model, or a wrapper around one.
template <typename M>
struct ImplOf {
  using type = std::remove_cvref_t<decltype(mezzo::amp::detail::bare_network(std::declval<M&>()))>;
};
template <typename M>
requires std::is_base_of_v<mezzo::amp::detail::ModelHandle, M>
struct ImplOf<M> {
  using type = typename M::Impl;
};
template <typename M>
requires(!std::is_base_of_v<mezzo::amp::detail::ModelHandle, M> && requires(const M& model) {
  model.module();
}) struct ImplOf<M> : ImplOf<std::remove_cvref_t<decltype(std::declval<const M&>().module())>> {
};

template <typename M, typename... Args>
concept Takes = deploy::detail::TakesArguments<typename ImplOf<M>::type, Args...>;

template <typename T>
inline constexpr bool kIsTuple = requires {
  std::tuple_size<T>::value;
};

template <typename M, typename Tuple>
inline constexpr bool kTakesElements = false;
template <typename M, typename Tuple>
requires kIsTuple<Tuple>
inline constexpr bool kTakesElements<M, Tuple> = []<std::size_t... i>(std::index_sequence<i...>) {
  return Takes<M, std::tuple_element_t<i, Tuple>...>;
}
(std::make_index_sequence<std::tuple_size_v<Tuple>>());

template <typename T>
concept ExampleRange = requires(const T& range) {
  range.begin();
  range.end();
  typename T::value_type;
};

/// A range of the arguments of calls.
template <typename M, typename T>
concept RangeOfTuples = ExampleRange<T> && kTakesElements<M, typename T::value_type>;

/// Can a value of TorchScript become an argument of this type?
template <typename T>
struct IsValueArgument
    : std::bool_constant<std::is_same_v<T, at::Tensor> || std::is_same_v<T, c10::IValue> ||
                         std::is_arithmetic_v<T> || std::is_same_v<T, std::string> ||
                         mezzo::amp::detail::PackedSequenceLike<T>> {};
template <typename T>
struct IsValueArgument<std::optional<T>> : IsValueArgument<T> {};
template <typename T>
struct IsValueArgument<std::vector<T>> : IsValueArgument<T> {};
template <typename T, std::size_t n>
struct IsValueArgument<std::array<T, n>> : IsValueArgument<T> {};
template <typename A, typename B>
struct IsValueArgument<std::pair<A, B>>
    : std::bool_constant<IsValueArgument<A>::value && IsValueArgument<B>::value> {};
template <typename... Ts>
struct IsValueArgument<std::tuple<Ts...>>
    : std::bool_constant<(IsValueArgument<Ts>::value && ...)> {};
template <typename T>
requires requires(T& map, typename T::key_type key, typename T::mapped_type value) {
  map.emplace(key, value);
}
struct IsValueArgument<T> : std::bool_constant<IsValueArgument<typename T::key_type>::value &&
                                               IsValueArgument<typename T::mapped_type>::value> {};

template <mezzo::amp::detail::OrderedDictLike T>
struct IsValueArgument<T> : std::true_type {};

/// Calls forward through what stands for the network. An nn::AnyModule stands for itself.
template <typename M, typename... Args>
void run_forward(M& network, Args&... args) {
  if constexpr (requires { network->forward(args...); }) {
    static_cast<void>(network->forward(args...));
  } else {
    static_cast<void>(mezzo::amp::detail::bare_network(network).forward(args...));
  }
}

/// The network as its calls on values see it.
template <typename M>
struct ValueCall {
  M model;
  template <typename... Args>
  requires Takes<M, Args...>
  void forward(Args&... args) { run_forward(model, args...); }
};

[[noreturn]] MEZZO_API void raise_typed_examples();

template <typename M, typename... Args>
void call_on_values([[maybe_unused]] const M& model,
                    [[maybe_unused]] const std::vector<c10::IValue>& values,
                    [[maybe_unused]] std::tuple<Args...>* types) {
  if constexpr ((IsValueArgument<deploy::detail::Stored<Args>>::value && ...)) {
    ValueCall<M> call{model};
    deploy::detail::call_forward(call, values, types);
  } else {
    raise_typed_examples();
  }
}

/// Calls forward with values of TorchScript as its arguments.
template <typename M>
void call_on_values(const M& model, const std::vector<c10::IValue>& values) {
  using Impl = typename ImplOf<M>::type;
  if constexpr (requires { deploy::detail::types_of(&Impl::forward); }) {
    call_on_values(model, values, deploy::detail::types_of(&Impl::forward));
  } else {
    ValueCall<M> call{model};
    deploy::detail::call_with_tensors<0, ValueCall<M>>(call, values);
  }
}

using ExampleCalls = std::vector<std::function<void()>>;

template <typename M>
void add_call_on_values(const M& model, std::vector<c10::IValue> values, ExampleCalls& into) {
  into.push_back([model, values = std::move(values)] { call_on_values<M>(model, values); });
}

template <typename M>
void add_calls_on_tensors(const M& model, const Examples& tensors, ExampleCalls& into) {
  if (tensors.empty()) return;
  if constexpr (Takes<M, at::Tensor>) {
    for (const at::Tensor& tensor : tensors) {
      into.push_back(
          [network = model, example = tensor]() mutable { run_forward(network, example); });
    }
  } else if constexpr (Takes<M, Examples>) {
    into.push_back(
        [network = model, example = tensors]() mutable { run_forward(network, example); });
  } else {
    add_call_on_values(model, {tensors.begin(), tensors.end()}, into);
  }
}

/// The calls that examples stand for: lists of tensors and of values as above; a tuple of the
/// arguments of one call; an argument of a network that takes one; a range of any of these.
template <typename M, typename E>
void add_example_calls(const M& model, const E& examples, ExampleCalls& into) {
  if constexpr (std::is_same_v<E, BracedExamples>) {
    add_calls_on_tensors(model, examples.tensors(), into);
    for (const auto& values : examples.calls()) add_call_on_values(model, values, into);
  } else if constexpr (std::is_same_v<E, Examples>) {
    add_calls_on_tensors(model, examples, into);
  } else if constexpr (std::is_same_v<E, std::vector<c10::IValue>>) {
    add_call_on_values(model, examples, into);
  } else if constexpr (kTakesElements<M, E>) {
    into.push_back([network = model, example = examples]() mutable {
      std::apply([&](auto&... each) { run_forward(network, each...); }, example);
    });
  } else if constexpr (requires {
                         { examples.values() } -> std::convertible_to<std::vector<c10::IValue>>;
                       }) {
    add_call_on_values(model, examples.values(), into);
  } else if constexpr (RangeOfTuples<M, E>) {
    for (const auto& each : examples) add_example_calls(model, each, into);
  } else if constexpr (Takes<M, E>) {
    into.push_back(
        [network = model, example = examples]() mutable { run_forward(network, example); });
  } else {
    static_assert(ExampleRange<E>,
                  "forward takes no such argument; give a tuple of its arguments, or a range of "
                  "them");
    for (const auto& each : examples) add_example_calls(model, each, into);
  }
}

}  // namespace detail
/// @endcond

}  // namespace mezzo::insight
