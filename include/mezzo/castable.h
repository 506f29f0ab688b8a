// How a type says that tensors in it are cast, and the cast of a single tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>  // first: clang cannot parse ATen's other headers without it

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::amp {

/// How one tensor is cast.
struct TensorCast {
  at::ScalarType to = at::ScalarType::Undefined;  ///< Undefined: no cast at all
  bool doubles = false;                           ///< float64 tensors too; otherwise they stay

  /// Is there a type to cast to?
  bool is_active() const noexcept { return to != at::ScalarType::Undefined; }

  /// The tensor itself where it is undefined, of the type already, or none of float32, half,
  /// bfloat16 (and float64, if asked); else a cast that autograd records.
  MEZZO_API at::Tensor operator()(const at::Tensor& tensor) const;
};

}  // namespace mezzo::amp

namespace mezzo::amp::detail {

using amp::TensorCast;

/// The originals that a cast leaves behind.
struct Kept {
  std::vector<std::shared_ptr<void>> lists;  ///< what cast tensor lists point at
  bool remembers = false;                    ///< are originals noted?
  bool keeps_pointers = false;               ///< does a shared_ptr stay the caller's own?
  std::vector<at::Tensor>* seen = nullptr;   ///< takes every tensor as it comes, if set
  /// Cast tensors and their originals; a cast one is held, so that its address stays its own.
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> originals;

  /// The tensor cast, and noted if asked.
  at::Tensor cast(const at::Tensor& tensor, const TensorCast& cast) {
    if (seen != nullptr) seen->push_back(tensor);
    at::Tensor result = cast(tensor);
    if (remembers && !result.is_same(tensor))
      originals.try_emplace(result.unsafeGetTensorImpl(), result, tensor);
    return result;
  }

  /// The tensor that a cast one stands for; any other is its own.
  const at::Tensor& original_of(const at::Tensor& tensor) const {
    const auto found = originals.find(tensor.unsafeGetTensorImpl());
    return found == originals.end() ? tensor : found->second.second;
  }
};

template <typename T>
concept CastsItself = std::copy_constructible<T> && requires(T& value, at::ScalarType to) {
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

/// Which types hold tensors that are cast, and how. The primary template: none, unless the object
/// casts itself. `borrows`: it points at tensors that something else must hold. `give_back` makes
/// an object what a function made of its cast copy, and touches what the function left alone as
/// little as the function did; an object that casts itself stays as it was.
template <typename T>
struct Castable {
  static constexpr bool value = CastsItself<T>;
  static constexpr bool borrows = false;
  // A template, so that arrays and functions, which cannot be returned, can be asked for `value`.
  template <typename Object>
  static Object cast(const Object& object, const TensorCast& cast, Kept&) {
    Object copy = object;
    return cast.is_active() ? static_cast<Object>(copy.to(cast.to)) : copy;
  }
  template <typename Object>
  static void give_back(Object&, const Object&, const Kept&) {}
};

/// The cast value, or a copy of it where its type holds no tensors.
template <typename T>
T cast_value(const T& value, const TensorCast& cast, Kept& kept) {
  if constexpr (Castable<T>::value) {
    return Castable<T>::cast(value, cast, kept);
  } else {
    return value;
  }
}

/// As Castable's; numbers and strings beside the tensors are given back too.
template <typename T>
void give_back(T& original, const T& now, const Kept& kept) {
  if constexpr (std::is_const_v<T>) {
    return;
  } else if constexpr (Castable<T>::value) {
    Castable<T>::give_back(original, now, kept);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                       std::is_same_v<T, std::string>) {
    if (original != now) original = now;
  }
}

/// A copy with originals in place of their casts.
template <typename T>
T given_back(const T& now, const Kept& kept) {
  T own = now;
  give_back(own, now, kept);
  return own;
}

template <typename T>
requires std::is_base_of_v<at::Tensor, T>
struct Castable<T> {
  static constexpr bool value = true, borrows = false;
  static T cast(const T& tensor, const TensorCast& cast, Kept& kept) {
    return T(kept.cast(tensor, cast));
  }
  static void give_back(T& original, const T& now, const Kept& kept) {
    const at::Tensor& own = kept.original_of(now);
    if (!own.is_same(original)) original = T(own);
  }
};

}  // namespace mezzo::amp::detail
