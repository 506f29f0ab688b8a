// The members of plain structs: how many there are, and a visit to each.
//
// C++20 has no reflection: structured bindings reach the members once their number is known, and
// their number is that of the initializers that the type takes.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace mezzo::amp::detail {

/// Becomes any member of T, but no base class of it and not T itself.
template <typename T>
struct AnyMember {
  template <typename U>
  requires(!std::is_base_of_v<U, T>) constexpr operator U() const noexcept;  // NOLINT(*-explicit-*)
};

/// Becomes a base class of T alone.
template <typename T>
struct AnyBase {
  template <typename U>
  requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>) constexpr operator U()
      const noexcept;  // NOLINT(*-explicit-*)
};

/// How many empty braces T takes; 17 stands for more than 16. Members that cannot be made of them
/// end the count.
template <typename T>
consteval std::size_t braces_taken() {
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 17;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 16;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 15;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 14;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 13;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 12;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 11;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 10;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; }) return 6;
  if constexpr (requires { T{{}, {}, {}, {}, {}}; }) return 5;
  if constexpr (requires { T{{}, {}, {}, {}}; }) return 4;
  if constexpr (requires { T{{}, {}, {}}; }) return 3;
  if constexpr (requires { T{{}, {}}; }) return 2;
  if constexpr (requires { T{{}}; }) return 1;
  return 0;
}

/// Does T take one more initializer after n empty braces?
template <typename T, std::size_t n>
consteval bool takes_another() {
  if constexpr (n == 0) return requires {
      T{AnyMember<T>()};
    };
  if constexpr (n == 1) return requires {
      T{{}, AnyMember<T>()};
    };
  if constexpr (n == 2) return requires {
      T{{}, {}, AnyMember<T>()};
    };
  if constexpr (n == 3) return requires {
      T{{}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 4) return requires {
      T{{}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 5) return requires {
      T{{}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 6) return requires {
      T{{}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 7) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 8) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 9) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 10) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 11) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 12) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 13) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 14) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  if constexpr (n == 15) return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>()};
    };
  return false;
}

template <typename T, std::size_t... i>
consteval bool takes_members(std::index_sequence<i...>) {
  return requires {
    T{(static_cast<void>(i), AnyMember<T>())...};
  };
}

/// How many initializers of any type T takes, up to n. Elements of arrays count one each.
template <typename T, std::size_t n = 17>
consteval std::size_t members_taken() {
  if constexpr (n == 0) {
    return 0;
  } else if constexpr (takes_members<T>(std::make_index_sequence<n>())) {
    return n;
  } else {
    return members_taken<T, n - 1>();
  }
}

/// A struct whose members structured bindings reach: a class without constructors, base classes or
/// private members.
template <typename T>
concept PlainStruct =
    std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T> && !requires {
  std::tuple_size<T>::value;
}
&&!requires {
  T{AnyBase<T>()};
};

/// The number of T's members; 0 if they cannot be reached.
template <typename T>
consteval std::size_t count_members() {
  if constexpr (!PlainStruct<T>) {
    return 0;
  } else {
    constexpr std::size_t braces = braces_taken<T>();
    if constexpr (braces == 17) {
      return 0;
    } else if constexpr (takes_another<T, braces>()) {
      // A member without an implicit default constructor.
      constexpr std::size_t members = members_taken<T>();
      return members <= 16 && members > braces ? members : 0;
    } else {
      return braces;
    }
  }
}

template <typename T>
inline constexpr std::size_t kMembers = count_members<std::remove_cv_t<T>>();

/// Calls the function with all members of a struct, in their order.
template <typename T, typename Function>
decltype(auto) with_members(T& object, Function&& function) {
  constexpr std::size_t kCount = kMembers<T>;
  if constexpr (kCount == 1) {
    auto& [a] = object;
    return function(a);
  } else if constexpr (kCount == 2) {
    auto& [a, b] = object;
    return function(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = object;
    return function(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = object;
    return function(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = object;
    return function(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = object;
    return function(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = object;
    return function(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = object;
    return function(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = object;
    return function(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = object;
    return function(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (kCount == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (kCount == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (kCount == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (kCount == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = object;
    return function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
}

template <typename... Ts>
struct TypeList {};

struct ListMembers {
  template <typename... Ts>
  TypeList<Ts...> operator()(Ts&...) const {
    return {};
  }
};

/// The types of T's members.
template <typename T>
using MembersOf = decltype(with_members(std::declval<T&>(), ListMembers()));

}  // namespace mezzo::amp::detail
