// Arguments and results of networks as values of TorchScript.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Type.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "mezzo/castable_structs.h"
#include "mezzo/error.h"
#include "mezzo/export.h"
#include "mezzo/shared_containers.h"

namespace mezzo::deploy::detail {

/// An example cannot become the argument it stands for, or there are too many or too few.
[[noreturn]] MEZZO_API void raise_argument(std::size_t index, const c10::IValue& got,
                                           const std::string& wanted);
[[noreturn]] MEZZO_API void raise_count(std::size_t got, std::size_t least, std::size_t most);

/// A value of a call as an argument of type T. `index` is for messages.
template <typename T>
struct Argument {
  static T from(const c10::IValue& value, std::size_t index) {
    if constexpr (std::is_same_v<T, c10::IValue>) {
      return value;
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      if (value.isNone()) return {};
      if (!value.isTensor()) raise_argument(index, value, "a tensor");
      return value.toTensor();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.isBool()) raise_argument(index, value, "a bool");
      return value.toBool();
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (!value.isScalar()) raise_argument(index, value, "a number");
      return value.toScalar().to<T>();
    } else if constexpr (std::is_same_v<T, at::Scalar>) {
      if (!value.isScalar()) raise_argument(index, value, "a number");
      return value.toScalar();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.isString()) raise_argument(index, value, "a text");
      return value.toStringRef();
    } else {
      try {
        return value.to<T>();
      } catch (const c10::Error&) {
        raise_argument(index, value, c10::demangle(typeid(T).name()));
      }
    }
  }
};

template <typename T>
struct Argument<std::optional<T>> {
  static std::optional<T> from(const c10::IValue& value, std::size_t index) {
    if (value.isNone()) return std::nullopt;
    return Argument<T>::from(value, index);
  }
};

template <mezzo::amp::detail::SequenceLike T>
struct Argument<T> {
  using Element = typename T::value_type;
  static T from(const c10::IValue& value, std::size_t index) {
    if (!value.isList()) raise_argument(index, value, "a list");
    if constexpr (std::is_same_v<T, c10::List<c10::IValue>>) {
      return value.toList();
    } else {
      T result;
      for (const c10::IValue& element : value.toListRef())
        result.push_back(Argument<Element>::from(element, index));
      return result;
    }
  }
};

/// As many elements as the list or tuple must have.
template <typename T, std::size_t n>
struct Argument<std::array<T, n>> {
  static std::array<T, n> from(const c10::IValue& value, std::size_t index) {
    const std::string wanted = "a list of " + std::to_string(n);
    if (!value.isList() && !value.isTuple()) raise_argument(index, value, wanted);
    const c10::ArrayRef<c10::IValue> elements =
        value.isList() ? value.toListRef()
                       : c10::ArrayRef<c10::IValue>(value.toTupleRef().elements());
    if (elements.size() != n) raise_argument(index, value, wanted);
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array<T, n>{Argument<T>::from(elements[i], index)...};
    }
    (std::make_index_sequence<n>());
  }
};

/// The first of the types that the value can be.
template <typename... Ts>
struct Argument<std::variant<Ts...>> {
  static std::variant<Ts...> from(const c10::IValue& value, std::size_t index) {
    std::optional<std::variant<Ts...>> result;
    (take<Ts>(value, index, result), ...);
    if (!result) raise_argument(index, value, "one of " + std::to_string(sizeof...(Ts)) + " types");
    return *std::move(result);
  }

 private:
  template <typename T>
  static void take(const c10::IValue& value, std::size_t index,
                   std::optional<std::variant<Ts...>>& result) {
    if (result) return;
    if constexpr (std::is_same_v<T, std::monostate>) {
      if (value.isNone()) result.emplace(T());
    } else {
      try {
        result.emplace(Argument<T>::from(value, index));
      } catch (const ConfigError&) {
        // It is another one.
      }
    }
  }
};

template <typename Tuple, typename... Ts>
struct TupleArgument {
  static Tuple from(const c10::IValue& value, std::size_t index) {
    if (!value.isTuple() || value.toTupleRef().elements().size() != sizeof...(Ts)) {
      raise_argument(index, value, "a tuple of " + std::to_string(sizeof...(Ts)));
    }
    const auto& elements = value.toTupleRef().elements();
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return Tuple{Argument<Ts>::from(elements[i], index)...};
    }
    (std::make_index_sequence<sizeof...(Ts)>());
  }
};
template <typename... Ts>
struct Argument<std::tuple<Ts...>> : TupleArgument<std::tuple<Ts...>, Ts...> {};
template <typename A, typename B>
struct Argument<std::pair<A, B>> : TupleArgument<std::pair<A, B>, A, B> {};

template <mezzo::amp::detail::DictionaryLike T>
struct Argument<T> {
  static T from(const c10::IValue& value, std::size_t index) {
    if (!value.isGenericDict()) raise_argument(index, value, "a dictionary");
    if constexpr (std::is_same_v<T, c10::impl::GenericDict>) {
      return value.toGenericDict();
    } else {
      T result;
      for (const auto& item : value.toGenericDict()) {
        mezzo::amp::detail::add_item(
            result, Argument<mezzo::amp::detail::KeyOf<T>>::from(item.key(), index),
            Argument<mezzo::amp::detail::MappedOf<T>>::from(item.value(), index));
      }
      return result;
    }
  }
};

/// A struct is the tuple of its members.
template <mezzo::amp::detail::OpenStruct T>
requires std::default_initializable<T>
struct Argument<T> {
  static T from(const c10::IValue& value, std::size_t index) {
    constexpr std::size_t kCount = mezzo::amp::detail::kMembers<T>;
    if (!value.isTuple() || value.toTupleRef().elements().size() != kCount)
      raise_argument(index, value, "a tuple of " + std::to_string(kCount));
    const auto& elements = value.toTupleRef().elements();
    T result{};
    mezzo::amp::detail::with_members(result, [&](auto&... members) {
      std::size_t next = 0;
      ((members = Argument<std::remove_cvref_t<decltype(members)>>::from(elements[next++], index)),
       ...);
    });
    return result;
  }
};

/// A packed sequence is a tuple: data, batch sizes, and the two orders, which may be absent.
template <mezzo::amp::detail::PackedSequenceLike T>
struct Argument<T> {
  static T from(const c10::IValue& value, std::size_t index) {
    const auto [data, sizes, sorted, unsorted] =
        Argument<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>>::from(value, index);
    return T(data, sizes, sorted, unsorted);
  }
};

/// The type in which a function's parameter is kept during the call.
template <typename T>
struct StoredArgument {
  using type = std::remove_cvref_t<T>;
};
template <typename T>
struct StoredArgument<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};
template <>
struct StoredArgument<std::string_view> {
  using type = std::string;
};
template <typename T>
using Stored = typename StoredArgument<std::remove_cvref_t<T>>::type;

/// A network's result as a value of TorchScript.
template <typename T>
c10::IValue to_ivalue(const T& value);

template <typename... Ts>
c10::IValue tuple_of(const Ts&... values) {
  std::vector<c10::IValue> elements;
  (elements.push_back(to_ivalue(values)), ...);
  return c10::ivalue::Tuple::create(std::move(elements));
}

/// A list of tensors, and a tuple of anything else. `each` calls its argument with each element.
template <typename Element, typename Each>
c10::IValue sequence_of(const Each& each) {
  if constexpr (std::is_same_v<Element, at::Tensor>) {
    c10::List<at::Tensor> list;
    each([&](const at::Tensor& element) { list.push_back(element); });
    return list;
  } else {
    std::vector<c10::IValue> elements;
    each([&](const auto& element) { elements.push_back(to_ivalue(element)); });
    return c10::ivalue::Tuple::create(std::move(elements));
  }
}

/// A dictionary whose types are those of its first item. A trace gives dictionaries of tensors and
/// of tuples of tensors, so lists in one are tuples.
template <typename Dictionary>
c10::IValue dictionary_of(const Dictionary& dictionary) {
  using Key = mezzo::amp::detail::KeyOf<Dictionary>;
  using Value = mezzo::amp::detail::MappedOf<Dictionary>;
  if constexpr (std::is_convertible_v<Key, std::string> && std::is_same_v<Value, at::Tensor>) {
    c10::Dict<std::string, at::Tensor> dict;
    mezzo::amp::detail::for_each_item(
        dictionary, [&](const auto& key, const auto& value) { dict.insert(key, value); });
    return dict;
  } else {
    std::optional<c10::impl::GenericDict> dict;
    mezzo::amp::detail::for_each_item(dictionary, [&](const auto& key, const auto& value) {
      const c10::IValue own_key = to_ivalue(key);
      c10::IValue own = to_ivalue(value);
      if (own.isList()) own = c10::ivalue::Tuple::create(own.toListRef().vec());
      if (!dict) dict.emplace(own_key.type(), own.type());
      dict->insert(own_key, std::move(own));
    });
    return dict ? c10::IValue(*dict) : c10::IValue(c10::Dict<std::string, at::Tensor>());
  }
}

template <typename T>
c10::IValue to_ivalue(const T& value) {
  using mezzo::amp::detail::DictionaryLike;
  using mezzo::amp::detail::PackedSequenceLike;
  using mezzo::amp::detail::SequenceLike;
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    return static_cast<const at::Tensor&>(value);
  } else if constexpr (PackedSequenceLike<T>) {
    return tuple_of(value.data(), value.batch_sizes(), value.sorted_indices(),
                    value.unsorted_indices());
  } else if constexpr (DictionaryLike<T>) {
    return dictionary_of(value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    return value.has_value() ? to_ivalue(*value) : c10::IValue();
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return std::string(value);
  } else if constexpr (requires {
                         typename T::element_type;
                         value.get();
                         *value;
                       }) {
    return value == nullptr ? c10::IValue() : to_ivalue(*value);
  } else if constexpr (requires { std::variant_size<T>::value; }) {
    return std::visit([](const auto& held) { return to_ivalue(held); }, value);
  } else if constexpr (std::is_same_v<T, std::monostate>) {
    return {};
  } else if constexpr (SequenceLike<T>) {
    return sequence_of<typename T::value_type>(
        [&](const auto& visit) { mezzo::amp::detail::for_each_element(value, visit); });
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                         typename T::value_type;
                       }) {
    return sequence_of<typename T::value_type>([&](const auto& visit) {
      for (const auto& element : value) visit(element);
    });
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([](const auto&... elements) { return tuple_of(elements...); }, value);
  } else if constexpr (mezzo::amp::detail::OpenStruct<T>) {
    return mezzo::amp::detail::with_members(
        value, [](const auto&... members) { return tuple_of(members...); });
  } else {
    return c10::IValue(value);
  }
}

}  // namespace mezzo::deploy::detail
