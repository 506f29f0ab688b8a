// Tensors as what the kernels' element arithmetic computes with: the same formulas, by LibTorch's
// operators, for devices that have no kernels of ours.
#pragma once

#include <ATen/ops/maximum.h>

#include "core/torch.h"
#include "kernels/elements.h"

namespace mezzo::optim {

struct TensorElements {
  at::Tensor values;
};

inline TensorElements operator+(const TensorElements& a, const TensorElements& b) {
  return {a.values.add(b.values)};
}
inline TensorElements operator-(const TensorElements& a, const TensorElements& b) {
  return {a.values.sub(b.values)};
}
inline TensorElements operator*(const TensorElements& a, const TensorElements& b) {
  return {a.values.mul(b.values)};
}
inline TensorElements operator/(const TensorElements& a, const TensorElements& b) {
  return {a.values.div(b.values)};
}
inline TensorElements operator+(const TensorElements& a, double b) {
  return {a.values.add(b)};
}
inline TensorElements operator*(const TensorElements& a, double b) {
  return {a.values.mul(b)};
}
inline TensorElements square_root(const TensorElements& a) {
  return {a.values.sqrt()};
}
inline TensorElements largest(const TensorElements& a, const TensorElements& b) {
  return {at::maximum(a.values, b.values)};
}

}  // namespace mezzo::optim
