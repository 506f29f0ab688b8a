// Products that sum over a single element: they are multiplications, as outer products are.
//
// Nothing is summed, so that float operands gain no time in 16 bits and lose their digits: an angle
// is a position times a frequency. Such a call runs in the widest type of its operands.
#pragma once

#include <string_view>

#include "core/torch.h"

namespace mezzo::casting {

/// Does the equation sum over dimensions of size 1 alone? False for one operand, for an equation
/// that LibTorch refuses, and for a sum over what stands for "...".
bool is_einsum_multiplication(std::string_view equation, at::TensorList operands);

/// How the kernel of an operator knows such a call by its arguments; of most, there is none.
template <typename Op>
struct Multiplication {
  static constexpr bool kPossible = false;
};

/// The inner dimension is the last one of a product's left operand.
inline bool is_multiplication_by(const at::Tensor& left) {
  const at::IntArrayRef sizes = left.sizes();
  return !sizes.empty() && sizes.back() == 1;
}

/// Operators whose first tensor is the left operand.
struct LeftIsFirst {
  static constexpr bool kPossible = true;
  template <typename... A>
  static bool is_one(const at::Tensor& left, const A&...) {
    return is_multiplication_by(left);
  }
};

/// Operators that add a product of their second and third tensors to the first.
struct LeftIsSecond {
  static constexpr bool kPossible = true;
  template <typename... A>
  static bool is_one(const at::Tensor&, const at::Tensor& left, const A&...) {
    return is_multiplication_by(left);
  }
};

}  // namespace mezzo::casting
