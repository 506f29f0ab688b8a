// Which calls need float inside, by their arguments: those that add up more than a few values in
// the type of their tensors, forward or in their derivative, and those whose derivative leaves the
// type though their value does not.
//
// A sum in bfloat16 stops at 256 equal terms, in float16 at 2048; of a few terms it is as exact as
// the terms are. LibTorch's kernels for processors mostly sum in float; rows of the operator table
// that say `sums` are those that do not.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <type_traits>

#include "casting/decision.h"
#include "core/torch.h"

namespace mezzo::casting {

/// As many terms a sum may have in any type.
inline constexpr std::int64_t kFewTerms = 4;

inline bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() && at::GradMode::is_enabled();
}

/// Does a call of a row that sums add up more than a few values? The arguments of most operators do
/// not say, and they may.
template <typename Op>
struct Sums {
  template <typename... A>
  static bool many(const A&...) {
    return true;
  }
};

/// Does the derivative of a call add up more than a few gradients, in the type that they come in?
template <typename Op>
struct GradientSums {
  static constexpr bool kPossible = false;
};

/// The needs of a steep row's derivative.
template <typename Op>
struct Steepness {
  template <typename... A>
  static Inside of(const A&...) {
    return Inside::kFloat;
  }
};

/// Do the float tensors of a call widen low ones? One without dimensions does not.
class FloatWidth {
 public:
  void look(const at::Tensor& tensor) {
    widens_ = widens_ || (tensor.scalar_type() == at::kFloat && tensor.dim() > 0);
  }
  bool widens() const { return widens_; }

 private:
  bool widens_ = false;
};

/// The type that the caller names for the result, in an argument `dtype`.
template <typename... A>
std::optional<at::ScalarType> named_type(const A&... arguments) {
  std::optional<at::ScalarType> named;
  const auto look = [&named](const auto& argument) {
    using T = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<T, at::ScalarType> ||
                  std::is_same_v<T, std::optional<at::ScalarType>>)
      named = argument;
  };
  (look(arguments), ...);
  return named;
}

/// A steep call whose result the caller gave a type.
inline Inside inside_for(at::ScalarType named) {
  return LowTypes::of(named).any() ? Inside::kOwnTypes : Inside::kFloatKept;
}

// ---- how often an element is part of a sum

namespace detail {

inline std::int64_t number(const c10::SymInt& value) {
  return value.maybe_as_int().value_or(0);
}

/// A list of one value for each dimension, where one value stands for all.
template <typename List>
std::int64_t of_dimension(const List& values, std::size_t dimension, std::int64_t none) {
  if (values.empty()) return none;
  return number(values[values.size() == 1 ? 0 : dimension]);
}

/// How many windows of the size may an element lie in?
inline std::int64_t windows_over(std::int64_t size, std::int64_t step, std::int64_t dilation = 1) {
  if (step <= 0) return 1;
  const std::int64_t apart = step / std::gcd(step, dilation);
  return (size + apart - 1) / apart;
}

/// How many adaptive windows may an element lie in?
inline std::int64_t adaptive_windows_over(std::int64_t in, std::int64_t out) {
  if (in <= 0 || out <= 0 || in % out == 0) return 1;
  return out % in == 0 ? out / in : out / in + 2;
}

}  // namespace detail

/// Pooling, with windows of these sizes over the last dimensions.
template <int kDims>
struct WindowSums {
  template <typename List>
  static bool many(const at::Tensor& self, const List& kernel, const List& stride,
                   const List& dilation) {
    if (!wants_gradient(self)) return false;
    std::int64_t terms = 1;
    for (std::size_t i = 0; i < kDims; ++i) {
      const std::int64_t size = detail::of_dimension(kernel, i, 1);
      terms *= detail::windows_over(size, detail::of_dimension(stride, i, size),
                                    detail::of_dimension(dilation, i, 1));
    }
    return terms > kFewTerms;
  }
};

/// Adaptive pooling to this size.
template <int kDims>
struct AdaptiveSums {
  template <typename List, typename... A>
  static bool many(const at::Tensor& self, const List& out, const A&...) {
    if (!wants_gradient(self) || self.dim() < kDims) return false;
    std::int64_t terms = 1;
    for (std::size_t i = 0; i < kDims; ++i) {
      const std::int64_t in = self.size(self.dim() - kDims + static_cast<std::int64_t>(i));
      terms *= detail::adaptive_windows_over(in, detail::of_dimension(out, i, in));
    }
    return terms > kFewTerms;
  }
};

/// Padding by copies of the edge, which gets the gradients of them all.
struct EdgeSums {
  template <typename List>
  static bool many(const at::Tensor& self, const List& padding) {
    if (!wants_gradient(self)) return false;
    std::int64_t terms = 1;
    for (std::size_t i = 0; i + 1 < padding.size(); i += 2)
      terms *= 1 + std::max(detail::number(padding[i]), detail::number(padding[i + 1]));
    return terms > kFewTerms;
  }
};

/// Elements picked by places, of which each may be there many times.
struct PickSums {
  template <typename... A>
  static bool many(const at::Tensor& self, const A&...) {
    return wants_gradient(self);
  }
};

/// As above; a mask names each element once.
struct PickByListSums {
  static bool many(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& places) {
    if (!wants_gradient(self)) return false;
    for (const std::optional<at::Tensor> each : places) {
      if (!each || !each->defined() || each->scalar_type() == at::kByte) continue;
      if (at::isIntegralType(each->scalar_type(), /*includeBool=*/false)) return true;
    }
    return false;
  }
};

/// LibTorch's `scatter` family sums in float on processors, by atomic additions elsewhere.
struct SumsOffProcessors {
  template <typename... A>
  static bool many(const at::Tensor& self, const A&...) {
    return !self.is_cpu();
  }
};

/// Does LibTorch's `index_add` go by way of `scatter_add`?
inline bool adds_by_scattering(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  const std::int64_t dims = self.dim();
  const bool at_an_end = dim == 0 || dim == -dims || dim == -1 || dim == dims - 1;
  return self.is_cpu() && dims > 1 && at_an_end && index.scalar_type() == at::kLong;
}

/// `index_add` and its forms.
struct IndexAddSums {
  static bool many(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                   const at::Tensor&, const at::Scalar& alpha) {
    return !adds_by_scattering(self, dim, index) || !alpha.equal(1.0);
  }
};

/// Divisions: the derivative by the divisor divides twice.
struct SteepDivisor {
  static Inside of(const at::Tensor& divisor) {
    return wants_gradient(divisor) ? Inside::kFloat : Inside::kOwnTypes;
  }
};

}  // namespace mezzo::casting
