// Casting the tensors inside a value: what inputs and outputs of a model, and arguments of cast
// functions, go through.
//
// Tensors are found in std::optional, vectors, arrays, pairs, tuples, ordered and unordered maps,
// torch::OrderedDict and packed sequences, nested in any way. A user's type takes part by a member
// `T to(at::ScalarType) const`. Containers keep their type; keys, integers, strings and everything
// else stay as they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>  // first: clang cannot parse ATen's other headers without it

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::amp {

/// How one tensor is cast.
struct TensorCast {
  at::ScalarType to;     ///< Undefined: no cast at all
  bool doubles = false;  ///< float64 tensors too; otherwise they stay

  /// The tensor itself where it is undefined, not floating-point or of the type already; else a
  /// cast that autograd records.
  MEZZO_API at::Tensor operator()(const at::Tensor& tensor) const;
};

namespace cast_detail {

template <typename T>
concept CastsItself = requires(const T& value, at::ScalarType to) {
  { value.to(to) } -> std::convertible_to<T>;
};

/// torch::nn::utils::rnn::PackedSequence, without its header.
template <typename T>
concept PackedSequenceLike = requires(const T& value) {
  { value.data() } -> std::convertible_to<at::Tensor>;
  { value.batch_sizes() } -> std::convertible_to<at::Tensor>;
  T(value.data(), value.batch_sizes(), value.sorted_indices(), value.unsorted_indices());
};

/// torch::OrderedDict, without its header.
template <typename T>
concept OrderedDictLike = requires(T& value) {
  value.items();
  value.begin()->key();
  value.begin()->value();
};

template <typename T>
struct Inside {  // what a type holds: nothing that is cast, unless it is one of those below
  static constexpr bool tensors =
      std::is_base_of_v<at::Tensor, T> || CastsItself<T> || PackedSequenceLike<T>;
};
template <OrderedDictLike T>
struct Inside<T> {
  static constexpr bool tensors =
      Inside<std::decay_t<decltype(std::declval<T&>().begin()->value())>>::tensors;
};
template <typename T>
struct Inside<std::optional<T>> : Inside<T> {};
template <typename T, typename A>
struct Inside<std::vector<T, A>> : Inside<T> {};
template <typename T, std::size_t N>
struct Inside<std::array<T, N>> : Inside<T> {};
template <typename... Ts>
struct Inside<std::tuple<Ts...>> {
  static constexpr bool tensors = (Inside<std::decay_t<Ts>>::tensors || ...);
};
template <typename A, typename B>
struct Inside<std::pair<A, B>> : Inside<std::tuple<A, B>> {};
template <typename K, typename V, typename C, typename A>
struct Inside<std::map<K, V, C, A>> : Inside<V> {};
template <typename K, typename V, typename H, typename E, typename A>
struct Inside<std::unordered_map<K, V, H, E, A>> : Inside<V> {};

template <typename T>
void cast_in_place(T& value, const TensorCast& cast);

template <typename T>
void cast_parts(std::optional<T>& value, const TensorCast& cast) {
  if (value) cast_in_place(*value, cast);
}
template <typename T, typename A>
void cast_parts(std::vector<T, A>& values, const TensorCast& cast) {
  for (T& value : values) cast_in_place(value, cast);
}
template <typename T, std::size_t N>
void cast_parts(std::array<T, N>& values, const TensorCast& cast) {
  for (T& value : values) cast_in_place(value, cast);
}
template <typename... Ts>
void cast_parts(std::tuple<Ts...>& values, const TensorCast& cast) {
  std::apply([&](auto&... parts) { (cast_in_place(parts, cast), ...); }, values);
}
template <typename A, typename B>
void cast_parts(std::pair<A, B>& values, const TensorCast& cast) {
  cast_in_place(values.first, cast);
  cast_in_place(values.second, cast);
}
template <typename K, typename V, typename C, typename A>
void cast_parts(std::map<K, V, C, A>& values, const TensorCast& cast) {
  for (auto& item : values) cast_in_place(item.second, cast);
}
template <typename K, typename V, typename H, typename E, typename A>
void cast_parts(std::unordered_map<K, V, H, E, A>& values, const TensorCast& cast) {
  for (auto& item : values) cast_in_place(item.second, cast);
}
template <OrderedDictLike T>
void cast_parts(T& values, const TensorCast& cast) {
  for (auto& item : values) cast_in_place(item.value(), cast);
}

template <typename T>
void cast_in_place(T& value, const TensorCast& cast) {
  if constexpr (!Inside<T>::tensors) {
    return;
  } else if constexpr (std::is_base_of_v<at::Tensor, T>) {
    value = cast(value);
  } else if constexpr (PackedSequenceLike<T>) {
    value = T(cast(value.data()), value.batch_sizes(), value.sorted_indices(),
              value.unsorted_indices());
  } else if constexpr (CastsItself<T>) {
    if (cast.to != at::ScalarType::Undefined) value = value.to(cast.to);
  } else {
    cast_parts(value, cast);
  }
}

}  // namespace cast_detail

/// The value with its tensors cast. A value that can hold none is handed on as the reference it is,
/// never copied.
template <typename T>
decltype(auto) cast_tensors(T&& value, const TensorCast& cast) {
  using Value = std::decay_t<T>;
  if constexpr (cast_detail::Inside<Value>::tensors) {
    Value result(std::forward<T>(value));
    cast_detail::cast_in_place(result, cast);
    return result;
  } else {
    return static_cast<T&&>(value);
  }
}

}  // namespace mezzo::amp
