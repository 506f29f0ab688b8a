// The containers that C++ and TorchScript share: which there are, and one way through each kind.
//
// Sequences: std::vector, std::deque, std::list, c10::List. Dictionaries: std::map,
// std::unordered_map and others that look like them, torch::OrderedDict, c10::Dict. Containers of
// fixed length: std::array, std::pair, std::tuple, plain structs. Beside them std::optional,
// std::variant and c10::IValue.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <concepts>
#include <deque>
#include <list>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/castable.h"

namespace mezzo::amp::detail {

template <typename T>
inline constexpr bool kIsSequence = false;
template <typename T, typename A>
inline constexpr bool kIsSequence<std::vector<T, A>> = true;
template <typename T, typename A>
inline constexpr bool kIsSequence<std::deque<T, A>> = true;
template <typename T, typename A>
inline constexpr bool kIsSequence<std::list<T, A>> = true;
template <typename T>
inline constexpr bool kIsSequence<c10::List<T>> = true;

/// Any number of elements, in order; it grows by push_back.
template <typename T>
concept SequenceLike = kIsSequence<T>;

/// Calls `visit` with each element.
template <SequenceLike Sequence, typename Visit>
void for_each_element(const Sequence& sequence, const Visit& visit) {
  if constexpr (requires { sequence.get(0); }) {
    for (std::size_t i = 0; i < sequence.size(); ++i) visit(sequence.get(i));
  } else {
    for (const auto& element : sequence) visit(element);
  }
}

/// Values by keys.
template <typename T>
concept DictionaryLike = OrderedDictLike<T> || requires {
  typename T::key_type;
  typename T::mapped_type;
};

/// Calls `visit` with each key and its value, in the dictionary's order.
template <DictionaryLike Dictionary, typename Visit>
void for_each_item(const Dictionary& dictionary, const Visit& visit) {
  for (const auto& item : dictionary) {
    if constexpr (requires { item.key(); }) {
      visit(item.key(), item.value());
    } else {
      visit(item.first, item.second);
    }
  }
}

template <typename T>
struct ItemTypes {
  using Key = typename T::key_type;
  using Value = typename T::mapped_type;
};
template <OrderedDictLike T>
struct ItemTypes<T> {
  using Key = std::decay_t<decltype(std::declval<T&>().begin()->key())>;
  using Value = std::decay_t<decltype(std::declval<T&>().begin()->value())>;
};
template <DictionaryLike T>
using KeyOf = typename ItemTypes<T>::Key;
template <DictionaryLike T>
using MappedOf = typename ItemTypes<T>::Value;

/// Adds an item whose key is not there yet.
template <DictionaryLike Dictionary>
void add_item(Dictionary& dictionary, KeyOf<Dictionary> key, MappedOf<Dictionary> value) {
  if constexpr (requires { dictionary.emplace(std::move(key), std::move(value)); }) {
    dictionary.emplace(std::move(key), std::move(value));
  } else {
    dictionary.insert(std::move(key), std::move(value));
  }
}

/// A c10::List is a handle: its cast is a list of its own.
template <typename T>
struct Castable<c10::List<T>> {
  static constexpr bool value = Castable<T>::value, borrows = Castable<T>::borrows;
  static c10::List<T> cast(const c10::List<T>& list, const TensorCast& cast, Kept& kept) {
    c10::List<T> result = list.copy();
    for (std::size_t i = 0; i < list.size(); ++i)
      result.set(i, cast_value<T>(T(list.get(i)), cast, kept));
    return result;
  }
  static void give_back(c10::List<T>& original, const c10::List<T>& now, const Kept& kept) {
    while (original.size() > now.size()) original.pop_back();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (i == original.size()) {
        original.push_back(given_back<T>(T(now.get(i)), kept));
        continue;
      }
      T own = original.get(i);
      detail::give_back<T>(own, T(now.get(i)), kept);
      original.set(i, std::move(own));
    }
  }
};

/// So is a c10::Dict.
template <typename K, typename V>
struct Castable<c10::Dict<K, V>> {
  static constexpr bool value = Castable<V>::value, borrows = Castable<V>::borrows;
  static c10::Dict<K, V> cast(const c10::Dict<K, V>& dict, const TensorCast& cast, Kept& kept) {
    c10::Dict<K, V> result = dict.copy();
    for_each_item(dict, [&](const K& key, const V& element) {
      result.insert_or_assign(key, cast_value<V>(element, cast, kept));
    });
    return result;
  }
  static void give_back(c10::Dict<K, V>& original, const c10::Dict<K, V>& now, const Kept& kept) {
    std::vector<K> gone;
    for_each_item(original, [&](const K& key, const V&) {
      if (!now.contains(key)) gone.push_back(key);
    });
    for (const K& key : gone) static_cast<void>(original.erase(key));
    for_each_item(now, [&](const K& key, const V& element) {
      if (!original.contains(key)) {
        original.insert(key, given_back<V>(element, kept));
        return;
      }
      V own = original.at(key);
      detail::give_back<V>(own, element, kept);
      original.insert_or_assign(key, std::move(own));
    });
  }
};

}  // namespace mezzo::amp::detail
