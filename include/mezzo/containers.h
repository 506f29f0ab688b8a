// Casting the tensors inside a value: what inputs and outputs of a model, and arguments of cast
// functions, go through.
//
// Tensors are found in std::optional, sequences, arrays, pairs, tuples, ordered and unordered maps,
// at::TensorList, torch::OrderedDict, c10::List and c10::Dict, packed sequences, c10::IValue,
// std::variant, and in plain structs of up to 16 members without base classes, nested in any way;
// in results also behind std::unique_ptr and std::shared_ptr. Any other type takes part by a member
// `to(at::ScalarType)` that gives the type again. Containers keep their type; keys, integers,
// strings and everything else stay as they are.
//
// An argument that the caller hands over as a variable is an output too: see CastArgument.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mezzo/castable.h"
#include "mezzo/castable_structs.h"

namespace mezzo::amp::detail {

template <PackedSequenceLike T>
struct Castable<T> {
  static constexpr bool value = true, borrows = false;
  static T cast(const T& packed, const TensorCast& cast, Kept& kept) {
    return T(kept.cast(packed.data(), cast), packed.batch_sizes(), packed.sorted_indices(),
             packed.unsorted_indices());
  }
  static void give_back(T& original, const T& now, const Kept& kept) {
    const at::Tensor& own = kept.original_of(now.data());
    if (own.is_same(original.data()) && now.batch_sizes().is_same(original.batch_sizes())) return;
    original = T(own, now.batch_sizes(), now.sorted_indices(), now.unsorted_indices());
  }
};

template <OrderedDictLike T>
struct Castable<T> {
  using Value = std::decay_t<decltype(std::declval<T&>().begin()->value())>;
  static constexpr bool value = Castable<Value>::value, borrows = Castable<Value>::borrows;
  static T cast(const T& dict, const TensorCast& cast, Kept& kept) {
    T result;
    for (const auto& item : dict) result.insert(item.key(), cast_value(item.value(), cast, kept));
    return result;
  }
  static void give_back(T& original, const T& now, const Kept& kept) {
    bool same_keys = original.size() == now.size();
    for (const auto& item : now) same_keys = same_keys && original.contains(item.key());
    if (!same_keys) {
      T result;
      for (const auto& item : now) result.insert(item.key(), given_back(item.value(), kept));
      original = std::move(result);
      return;
    }
    for (const auto& item : now) detail::give_back(original[item.key()], item.value(), kept);
  }
};

template <typename T>
struct Castable<std::optional<T>> : Castable<T> {
  static std::optional<T> cast(const std::optional<T>& optional, const TensorCast& cast,
                               Kept& kept) {
    if (!optional) return std::nullopt;
    return cast_value(*optional, cast, kept);
  }
  static void give_back(std::optional<T>& original, const std::optional<T>& now, const Kept& kept) {
    if (original && now) {
      detail::give_back(*original, *now, kept);
    } else if (original || now) {
      original.reset();
      if (now) original.emplace(given_back(*now, kept));
    }
  }
};

template <typename T>
struct Castable<c10::ArrayRef<T>> {
  static constexpr bool value = Castable<T>::value, borrows = true;
  static c10::ArrayRef<T> cast(c10::ArrayRef<T> list, const TensorCast& cast, Kept& kept) {
    auto values = std::make_shared<std::vector<T>>();
    values->reserve(list.size());
    for (const T& element : list) values->push_back(cast_value(element, cast, kept));
    kept.lists.push_back(values);
    return *values;
  }
  static void give_back(c10::ArrayRef<T>&, const c10::ArrayRef<T>&, const Kept&) {}
};

/// Sequences that grow at their end.
template <typename Sequence>
struct CastableSequence : Castable<typename Sequence::value_type> {
  static Sequence cast(const Sequence& sequence, const TensorCast& cast, Kept& kept) {
    Sequence result;
    if constexpr (requires { result.reserve(sequence.size()); }) result.reserve(sequence.size());
    for (const auto& element : sequence) result.push_back(cast_value(element, cast, kept));
    return result;
  }
  static void give_back(Sequence& original, const Sequence& now, const Kept& kept) {
    while (original.size() > now.size()) original.pop_back();
    auto from = now.begin();
    for (auto& element : original) detail::give_back(element, *from++, kept);
    for (; from != now.end(); ++from) original.push_back(given_back(*from, kept));
  }
};
template <typename T, typename A>
struct Castable<std::vector<T, A>> : CastableSequence<std::vector<T, A>> {};
template <typename T, typename A>
struct Castable<std::deque<T, A>> : CastableSequence<std::deque<T, A>> {};
template <typename T, typename A>
struct Castable<std::list<T, A>> : CastableSequence<std::list<T, A>> {};

/// Arrays, pairs and tuples. Those of references are left alone: a cast would have nowhere to live.
template <typename Tuple, typename... Ts>
struct CastableTuple {
  static constexpr bool value = (Castable<Ts>::value || ...) && (!std::is_reference_v<Ts> && ...);
  static constexpr bool borrows = (Castable<Ts>::borrows || ...);
  static Tuple cast(const Tuple& tuple, const TensorCast& cast, Kept& kept) {
    return std::apply(
        [&](const auto&... elements) { return Tuple{cast_value(elements, cast, kept)...}; }, tuple);
  }
  static void give_back(Tuple& original, const Tuple& now, const Kept& kept) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (detail::give_back(std::get<I>(original), std::get<I>(now), kept), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }
};
template <typename T, std::size_t N>
struct Castable<std::array<T, N>> : CastableTuple<std::array<T, N>, T> {};
template <typename T>
struct Castable<std::array<T, 0>> : Castable<void> {};
template <typename A, typename B>
struct Castable<std::pair<A, B>> : CastableTuple<std::pair<A, B>, A, B> {};
template <typename... Ts>
struct Castable<std::tuple<Ts...>> : CastableTuple<std::tuple<Ts...>, Ts...> {};

/// Maps: the values are cast in a copy, which keeps comparison, hashing and order.
template <typename Map>
struct CastableMap : Castable<typename Map::mapped_type> {
  static Map cast(const Map& map, const TensorCast& cast, Kept& kept) {
    Map result = map;
    for (auto& [key, element] : result) element = cast_value(element, cast, kept);
    return result;
  }
  static void give_back(Map& original, const Map& now, const Kept& kept) {
    if (!same_keys(original, now)) {
      Map result = now;
      for (auto& [key, element] : result) element = given_back(element, kept);
      original = std::move(result);
      return;
    }
    auto from = now.begin();
    for (auto& [key, element] : original) {
      if constexpr (kUniqueKeys) from = now.find(key);
      detail::give_back(element, from->second, kept);
      ++from;
    }
  }

 private:
  static constexpr bool kUniqueKeys = requires(Map map, const typename Map::key_type& key) {
    map.try_emplace(key);
  };

  static bool same_keys(const Map& original, const Map& now) {
    if (original.size() != now.size()) return false;
    if constexpr (requires { now.hash_function(); }) {
      for (const auto& [key, element] : original) {
        if (!now.contains(key)) return false;
      }
      return true;
    } else {
      return std::equal(original.begin(), original.end(), now.begin(),
                        [less = now.key_comp()](const auto& a, const auto& b) {
                          return !less(a.first, b.first) && !less(b.first, a.first);
                        });
    }
  }
};
template <typename K, typename V, typename C, typename A>
struct Castable<std::map<K, V, C, A>> : CastableMap<std::map<K, V, C, A>> {};
template <typename K, typename V, typename C, typename A>
struct Castable<std::multimap<K, V, C, A>> : CastableMap<std::multimap<K, V, C, A>> {};
template <typename K, typename V, typename H, typename E, typename A>
struct Castable<std::unordered_map<K, V, H, E, A>>
    : CastableMap<std::unordered_map<K, V, H, E, A>> {};

/// An argument on its way into a function: the caller's object itself, or a cast copy of it with
/// the same value category. Lives until the function has returned.
///
/// A copy of a variable that is not const is given back then, also where the function threw, as if
/// there had been no cast: what the function added, assigned or removed is the caller's, in the
/// type that it came in; what the function left alone stays the caller's uncast tensor. Writes in
/// place into a cast tensor are lost with the copy, as are changes to a type with a `to`.
template <typename Arg>
class CastArgument {
 public:
  using Value = std::remove_cvref_t<Arg>;
  static constexpr bool kIsCast = Castable<Value>::value && std::is_copy_constructible_v<Value>;
  static constexpr bool kGivesBack = std::is_lvalue_reference_v<Arg> &&
                                     !std::is_const_v<std::remove_reference_t<Arg>> && kIsCast &&
                                     !Castable<Value>::borrows;

  CastArgument(Arg&& original, const TensorCast& cast) : original_(std::forward<Arg>(original)) {
    kept_.remembers = kGivesBack;
    kept_.keeps_pointers = true;
    if constexpr (kIsCast) {
      if (cast.is_active()) cast_.emplace(cast_value<Value>(original_, cast, kept_));
    }
  }

  CastArgument(CastArgument&& other) noexcept(
      std::is_nothrow_move_constructible_v<Value>&& std::is_nothrow_move_constructible_v<Kept>)
      : original_(static_cast<Arg&&>(other.original_)),
        kept_(std::move(other.kept_)),
        cast_(std::move(other.cast_)) {
    if constexpr (kIsCast) other.cast_.reset();
  }

  // Throws what assigning to the caller's object throws.
  ~CastArgument() noexcept(!kGivesBack) {
    if constexpr (kGivesBack) {
      if (cast_) give_back(original_, *cast_, kept_);
    }
  }

  Arg&& get() {
    if constexpr (kIsCast) {
      if (cast_) return static_cast<Arg&&>(*cast_);
    }
    return static_cast<Arg&&>(original_);
  }

 private:
  struct Nothing {};
  Arg&& original_;
  Kept kept_;
  std::conditional_t<kIsCast, std::optional<Value>, Nothing> cast_;
};

/// The tensors in a value, in their order; undefined ones too.
template <typename T>
std::vector<at::Tensor> tensors_in(const T& value) {
  std::vector<at::Tensor> found;
  Kept kept;
  kept.keeps_pointers = true;
  kept.seen = &found;
  static_cast<void>(cast_value(value, TensorCast{}, kept));
  return found;
}

/// Can a call with this argument be made again later? It is copied, its tensors by reference.
template <typename Arg, typename Value = std::remove_cvref_t<Arg>>
inline constexpr bool kCanBeRepeated =
    std::is_copy_constructible_v<Value> && !std::is_pointer_v<Value> && !std::is_array_v<Value> &&
    (std::is_arithmetic_v<Value> || std::is_enum_v<Value> || std::is_same_v<Value, std::string> ||
     std::is_same_v<Value, std::nullopt_t> ||
     (Castable<Value>::value && !Castable<Value>::borrows));

}  // namespace mezzo::amp::detail

namespace mezzo::amp {

/// Does a type hold tensors that `cast_tensors` casts? Not where it only points at them.
template <typename T>
inline constexpr bool holds_tensors = detail::Castable<std::remove_cvref_t<T>>::value &&
                                      !detail::Castable<std::remove_cvref_t<T>>::borrows;

/// The value with its tensors cast. A value that holds none is handed on as the reference it is,
/// never copied.
template <typename T>
decltype(auto) cast_tensors(T&& value, const TensorCast& cast) {
  if constexpr (holds_tensors<T>) {
    detail::Kept nothing;
    return detail::cast_value<std::remove_cvref_t<T>>(value, cast, nothing);
  } else {
    return static_cast<T&&>(value);
  }
}

}  // namespace mezzo::amp
