// Tensors in structs, smart pointers, variants and c10::IValue.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

#include "mezzo/aggregates.h"
#include "mezzo/castable.h"
#include "mezzo/shared_containers.h"

namespace mezzo::amp::detail {

/// The innermost element of a container: of a vector, the value of a map, the object a pointer
/// points at.
template <typename T>
struct Innermost {
  using type = T;
};
template <typename T>
requires requires {
  typename T::mapped_type;
}
struct Innermost<T> : Innermost<typename T::mapped_type> {};
template <typename T>
requires(
    !requires { typename T::mapped_type; } &&
    requires { typename T::value_type; }) struct Innermost<T> : Innermost<typename T::value_type> {
};
template <typename T>
requires(
    !requires { typename T::value_type; } &&
    requires { typename T::element_type; }) struct Innermost<T>
    : Innermost<std::remove_cv_t<typename T::element_type>> {
};

template <typename T>
struct HoldsTensors : std::bool_constant<Castable<T>::value> {};
template <typename T>
struct BorrowsTensors : std::bool_constant<Castable<T>::borrows> {};

/// The castability of a struct's members. A tree's children are trees and add nothing.
template <typename Owner, typename Member>
struct MemberTraits {
  using Type = std::remove_cv_t<std::remove_all_extents_t<Member>>;
  static constexpr bool kIsOwner = std::is_same_v<typename Innermost<Type>::type, Owner>;
  static constexpr bool kIsCastable =
      std::conditional_t<kIsOwner, std::false_type, HoldsTensors<Type>>::value;
  static constexpr bool kBorrows =
      std::conditional_t<kIsOwner, std::false_type, BorrowsTensors<Type>>::value;
  static constexpr bool kChanges = kIsCastable || kIsOwner;
  static constexpr bool kRemade =
      !std::is_array_v<Member> && (kChanges || std::is_copy_constructible_v<Member>);
  static constexpr bool kAssigned =
      !kChanges || (!std::is_const_v<Member> && std::is_move_assignable_v<Type>);
};

template <typename Owner, typename List>
struct StructTraits;
template <typename Owner, typename... Members>
struct StructTraits<Owner, TypeList<Members...>> {
  static constexpr bool kBorrows = (MemberTraits<Owner, Members>::kBorrows || ...);
  static constexpr bool kAssigns =
      std::is_copy_constructible_v<Owner> && (MemberTraits<Owner, Members>::kAssigned && ...);
  static constexpr bool kRemakes = (MemberTraits<Owner, Members>::kRemade && ...);
  static constexpr bool kHoldsTensors =
      (MemberTraits<Owner, Members>::kIsCastable || ...) && (kAssigns || kRemakes);
};

/// A struct that says nothing itself of its tensors.
template <typename T>
concept OpenStruct = (kMembers<T> > 0) && !CastsItself<T> && !std::is_base_of_v<at::Tensor, T> &&
                     !PackedSequenceLike<T> && !OrderedDictLike<T>;

template <OpenStruct T>
struct Castable<T> {
  using Traits = StructTraits<T, MembersOf<T>>;
  static constexpr bool value = Traits::kHoldsTensors;
  static constexpr bool borrows = Traits::kBorrows;

  static T cast(const T& object, const TensorCast& cast, Kept& kept) {
    if constexpr (Traits::kAssigns) {
      T copy = object;
      with_members(copy, [&](auto&... members) { (cast_member(members, cast, kept), ...); });
      return copy;
    } else {
      return with_members(
          object, [&](const auto&... members) { return T{cast_value(members, cast, kept)...}; });
    }
  }

  static void give_back(T& original, const T& now, const Kept& kept) {
    with_members(original, [&](auto&... to) {
      with_members(now, [&](const auto&... from) { (give_member_back(to, from, kept), ...); });
    });
  }

 private:
  template <typename Member>
  static void cast_member(Member& member, const TensorCast& cast, Kept& kept) {
    if constexpr (std::is_array_v<Member>) {
      for (auto& element : member) cast_member(element, cast, kept);
    } else if constexpr (!std::is_const_v<Member>) {
      if constexpr (Castable<Member>::value) member = cast_value(member, cast, kept);
    }
  }

  template <typename Member, typename From>
  static void give_member_back(Member& to, const From& from, const Kept& kept) {
    if constexpr (std::is_array_v<Member>) {
      for (std::size_t i = 0; i < std::extent_v<Member>; ++i)
        give_member_back(to[i], from[i], kept);
    } else if constexpr (!std::is_const_v<Member>) {
      detail::give_back(to, from, kept);
    }
  }
};

/// The object that a smart pointer owns, if it may be copied whole.
template <typename T>
inline constexpr bool kPointsAtTensors =
    Castable<std::remove_cv_t<T>>::value && !std::is_polymorphic_v<T>;

/// In results. An argument stays the caller's own pointer, since others may look through it.
template <typename T>
struct Castable<std::shared_ptr<T>> {
  static constexpr bool value = kPointsAtTensors<T>;
  static constexpr bool borrows = Castable<std::remove_cv_t<T>>::borrows;
  static std::shared_ptr<T> cast(const std::shared_ptr<T>& pointer, const TensorCast& cast,
                                 Kept& kept) {
    if (pointer == nullptr || kept.keeps_pointers) return pointer;
    return std::make_shared<T>(cast_value<std::remove_cv_t<T>>(*pointer, cast, kept));
  }
  static void give_back(std::shared_ptr<T>& original, const std::shared_ptr<T>& now, const Kept&) {
    if (original != now) original = now;
  }
};

template <typename T>
struct Castable<std::unique_ptr<T>> {
  static constexpr bool value = kPointsAtTensors<T>;
  static constexpr bool borrows = Castable<std::remove_cv_t<T>>::borrows;
  static std::unique_ptr<T> cast(const std::unique_ptr<T>& pointer, const TensorCast& cast,
                                 Kept& kept) {
    if (pointer == nullptr) return nullptr;
    return std::make_unique<T>(cast_value<std::remove_cv_t<T>>(*pointer, cast, kept));
  }
  static void give_back(std::unique_ptr<T>& original, const std::unique_ptr<T>& now,
                        const Kept& kept) {
    if constexpr (!std::is_const_v<T>) {
      if (original != nullptr && now != nullptr) detail::give_back(*original, *now, kept);
    }
  }
};

template <typename... Ts>
struct Castable<std::variant<Ts...>> {
  using Variant = std::variant<Ts...>;
  static constexpr bool value = (Castable<Ts>::value || ...);
  static constexpr bool borrows = (Castable<Ts>::borrows || ...);
  static Variant cast(const Variant& variant, const TensorCast& cast, Kept& kept) {
    return cast_index(variant, cast, kept, std::index_sequence_for<Ts...>());
  }
  static void give_back(Variant& original, const Variant& now, const Kept& kept) {
    give_index_back(original, now, kept, std::index_sequence_for<Ts...>());
  }

 private:
  template <std::size_t... i>
  static Variant cast_index(const Variant& variant, const TensorCast& cast, Kept& kept,
                            std::index_sequence<i...>) {
    std::optional<Variant> result;
    const auto take = [&]<std::size_t n>(std::integral_constant<std::size_t, n>) {
      if (variant.index() == n)
        result.emplace(std::in_place_index<n>, cast_value(std::get<n>(variant), cast, kept));
    };
    (take(std::integral_constant<std::size_t, i>()), ...);
    return result ? *std::move(result) : variant;
  }
  template <std::size_t... i>
  static void give_index_back(Variant& original, const Variant& now, const Kept& kept,
                              std::index_sequence<i...>) {
    const auto give = [&]<std::size_t n>(std::integral_constant<std::size_t, n>) {
      if (now.index() != n) return;
      if (original.index() == n) {
        detail::give_back(std::get<n>(original), std::get<n>(now), kept);
      } else {
        original.template emplace<n>(given_back(std::get<n>(now), kept));
      }
    };
    (give(std::integral_constant<std::size_t, i>()), ...);
  }
};

/// A value of TorchScript with all tensors in its tuples, lists and dictionaries cast.
MEZZO_API c10::IValue cast_ivalue(const c10::IValue& value, const TensorCast& cast, Kept& kept);

template <>
struct Castable<c10::IValue> {
  static constexpr bool value = true, borrows = false;
  static c10::IValue cast(const c10::IValue& value, const TensorCast& cast, Kept& kept) {
    return cast_ivalue(value, cast, kept);
  }
  static void give_back(c10::IValue& original, const c10::IValue& now, const Kept& kept) {
    if (now.isTensor() && original.isTensor()) {
      const at::Tensor& own = kept.original_of(now.toTensor());
      if (!own.is_same(original.toTensor())) original = own;
    } else if (now.isTensor()) {
      original = kept.original_of(now.toTensor());
    }
  }
};

/// The first class in T that may hold tensors which nothing here reaches; null: there is none.
template <typename T>
const std::type_info* unreached_in() {
  if constexpr (!std::is_class_v<T> || std::is_empty_v<T> || std::is_base_of_v<at::Tensor, T> ||
                std::is_same_v<T, c10::IValue> || std::is_same_v<T, std::string> ||
                std::is_same_v<T, std::string_view> || CastsItself<T> || PackedSequenceLike<T> ||
                OrderedDictLike<T>) {  // NOLINT(bugprone-branch-clone): the order matters
    return nullptr;
  } else if constexpr (requires { typename Innermost<T>::type; } &&
                       !std::is_same_v<typename Innermost<T>::type, T>) {
    return unreached_in<typename Innermost<T>::type>();
  } else if constexpr (OpenStruct<T>) {
    return []<typename... Ms>(TypeList<Ms...>) {
      const std::type_info* found = nullptr;
      const auto look = [&]<typename M>(std::type_identity<M>) {
        if constexpr (!MemberTraits<T, M>::kIsOwner) {
          if (found == nullptr) found = unreached_in<typename MemberTraits<T, M>::Type>();
        }
      };
      (look(std::type_identity<Ms>()), ...);
      return found;
    }(MembersOf<T>());
  } else if constexpr (requires { std::tuple_size<T>::value; } || Castable<T>::value) {
    return nullptr;
  } else {
    return &typeid(T);
  }
}

}  // namespace mezzo::amp::detail
