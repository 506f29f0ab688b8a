// Casting the tensors inside arguments and results, whatever holds them.
//
// A value is cast if it is a tensor, a container of such values, or an object that casts itself;
// everything else is passed on untouched. Containers keep their type and their keys.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/utils/rnn.h>
#include <torch/ordered_dict.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::detail {

/// What happens to a floating tensor at the border of a model.
struct CastRule {
  at::ScalarType to = at::ScalarType::Undefined;  ///< Undefined: nothing
  bool doubles_too = false;                       ///< float64 tensors are cast as well

  bool is_active() const noexcept { return to != at::ScalarType::Undefined; }

  /// The tensor in the rule's type, recorded by autograd; the tensor itself where the rule does not
  /// touch it.
  MEZZO_API at::Tensor cast(const at::Tensor& tensor) const;

  /// Would an object with a `to(dtype)` of its own be asked? Tensors inside it are its own
  /// business.
  template <typename T>
  T cast_itself(const T& value) const {
    T copy = value;
    return copy.to(to);
  }
};

/// An object that casts itself: `batch.to(at::kHalf)` gives a batch.
template <typename T>
concept CastsItself = std::copy_constructible<T> && requires(T& value, at::ScalarType type) {
  { value.to(type) } -> std::convertible_to<T>;
};

/// Which types are cast, and how. The primary template: not at all, unless the object casts itself.
template <typename T>
struct Castable {
  static constexpr bool value = CastsItself<T>;
  // A template, so that arrays and functions, which cannot be returned, can be asked for `value`.
  template <typename Object>
  static Object cast(const Object& object, const CastRule& rule) {
    return rule.cast_itself(object);
  }
};

template <typename T>
inline constexpr bool kCastable = Castable<T>::value;

/// The cast value, or a copy of it where its type holds no tensors.
template <typename T>
T cast_value(const T& value, const CastRule& rule) {
  if constexpr (kCastable<T>) {
    return Castable<T>::cast(value, rule);
  } else {
    return value;
  }
}

template <>
struct Castable<at::Tensor> {
  static constexpr bool value = true;
  static at::Tensor cast(const at::Tensor& tensor, const CastRule& rule) {
    return rule.cast(tensor);
  }
};

template <>
struct Castable<torch::nn::utils::rnn::PackedSequence> {
  static constexpr bool value = true;
  using Packed = torch::nn::utils::rnn::PackedSequence;
  static Packed cast(const Packed& packed, const CastRule& rule) {
    return Packed(rule.cast(packed.data()), packed.batch_sizes(), packed.sorted_indices(),
                  packed.unsorted_indices());
  }
};

template <typename T>
struct Castable<std::optional<T>> {
  static constexpr bool value = kCastable<T>;
  static std::optional<T> cast(const std::optional<T>& value_, const CastRule& rule) {
    if (!value_) return std::nullopt;
    return cast_value(*value_, rule);
  }
};

/// Sequences that grow at their end.
template <typename Sequence>
struct CastableSequence {
  static constexpr bool value = kCastable<typename Sequence::value_type>;
  static Sequence cast(const Sequence& sequence, const CastRule& rule) {
    Sequence result;
    for (const auto& element : sequence) result.push_back(cast_value(element, rule));
    return result;
  }
};

template <typename T, typename A>
struct Castable<std::vector<T, A>> : CastableSequence<std::vector<T, A>> {};
template <typename T, typename A>
struct Castable<std::deque<T, A>> : CastableSequence<std::deque<T, A>> {};
template <typename T, typename A>
struct Castable<std::list<T, A>> : CastableSequence<std::list<T, A>> {};

template <typename T, std::size_t n>
struct Castable<std::array<T, n>> {
  static constexpr bool value = n > 0 && kCastable<T>;
  static std::array<T, n> cast(const std::array<T, n>& array, const CastRule& rule) {
    return std::apply(
        [&](const auto&... elements) { return std::array<T, n>{cast_value(elements, rule)...}; },
        array);
  }
};

// Tuples and pairs of references are left alone: a cast would have nowhere to live.
template <typename... Ts>
inline constexpr bool kAllValues = (!std::is_reference_v<Ts> && ...);

template <typename A, typename B>
struct Castable<std::pair<A, B>> {
  static constexpr bool value = kAllValues<A, B> && (kCastable<A> || kCastable<B>);
  static std::pair<A, B> cast(const std::pair<A, B>& pair, const CastRule& rule) {
    return {cast_value(pair.first, rule), cast_value(pair.second, rule)};
  }
};

template <typename... Ts>
struct Castable<std::tuple<Ts...>> {
  static constexpr bool value = kAllValues<Ts...> && (kCastable<Ts> || ...);
  static std::tuple<Ts...> cast(const std::tuple<Ts...>& tuple, const CastRule& rule) {
    return std::apply(
        [&](const auto&... elements) { return std::tuple<Ts...>(cast_value(elements, rule)...); },
        tuple);
  }
};

/// Maps: the values are cast in a copy, which keeps comparison, hashing and order.
template <typename Map>
struct CastableMap {
  static constexpr bool value = kCastable<typename Map::mapped_type>;
  static Map cast(const Map& map, const CastRule& rule) {
    Map result = map;
    for (auto& [key, element] : result) element = cast_value(element, rule);
    return result;
  }
};

template <typename K, typename V, typename C, typename A>
struct Castable<std::map<K, V, C, A>> : CastableMap<std::map<K, V, C, A>> {};
template <typename K, typename V, typename C, typename A>
struct Castable<std::multimap<K, V, C, A>> : CastableMap<std::multimap<K, V, C, A>> {};
template <typename K, typename V, typename H, typename E, typename A>
struct Castable<std::unordered_map<K, V, H, E, A>>
    : CastableMap<std::unordered_map<K, V, H, E, A>> {};

template <typename K, typename V>
struct Castable<torch::OrderedDict<K, V>> {
  static constexpr bool value = kCastable<V>;
  static torch::OrderedDict<K, V> cast(const torch::OrderedDict<K, V>& dict, const CastRule& rule) {
    torch::OrderedDict<K, V> result;
    for (const auto& item : dict) result.insert(item.key(), cast_value(item.value(), rule));
    return result;
  }
};

/// An argument on its way into a model: the caller's object itself, or a cast copy of it with the
/// same value category.
template <typename Arg>
class CastArgument {
 public:
  using Value = std::remove_cvref_t<Arg>;

  CastArgument(Arg&& original, const CastRule& rule) : original_(std::forward<Arg>(original)) {
    if constexpr (kCastable<Value>) {
      if (rule.is_active()) cast_.emplace(cast_value<Value>(original_, rule));
    }
  }

  Arg&& get() {
    if constexpr (kCastable<Value>) {
      if (cast_) return static_cast<Arg&&>(*cast_);
    }
    return static_cast<Arg&&>(original_);
  }

 private:
  struct Nothing {};
  Arg&& original_;
  std::conditional_t<kCastable<Value>, std::optional<Value>, Nothing> cast_;
};

}  // namespace mezzo::detail
