// Operators of quantised models. Integers are multiplied in float64, which is exact.
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sub.h>

#include <limits>

#include "convert/engine/torch/convolution.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

// One value, or one per place of that axis of `x`.
Tensor along_axis(const Tensor& values, const Tensor& x, std::int64_t axis) {
  if (values.numel() == 1) return values.reshape({});
  if (values.dim() != 1) return values;
  const std::int64_t place = wrapped(axis, x.dim());
  if (place < 0 || place >= x.dim()) refuse("values along axis ", axis, " of ", x.dim());
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(place)] = -1;
  return values.reshape(shape);
}

// Input `i` of a quantisation of `x`: one value, one per place of the axis, or one per block of
// them.
Tensor spread(const Call& c, std::size_t i, const Tensor& x) {
  const std::int64_t axis = c.integer("axis", 1);
  const std::int64_t block = c.integer("block_size", 0);
  const Tensor& values = c.in(i);
  if (block == 0) return along_axis(values, x, axis);
  const std::int64_t place = wrapped(axis, x.dim());
  if (block < 0 || values.dim() != x.dim() || place < 0 || place >= x.dim() ||
      values.size(place) != (x.size(place) + block - 1) / block) {
    refuse("blocks of ", block, " values along axis ", axis);
  }
  return at::repeat_interleave(values, block, place).narrow(place, 0, x.size(place));
}

template <typename T>
Tensor saturated(const Tensor& values, at::ScalarType type) {
  return at::clamp(values, static_cast<double>(std::numeric_limits<T>::min()),
                   static_cast<double>(std::numeric_limits<T>::max()))
      .to(type);
}

// Whole numbers, brought into the range of the type.
Tensor saturated_to(const Tensor& values, at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return saturated<std::uint8_t>(values, type);
    case at::kChar:
      return saturated<std::int8_t>(values, type);
    case at::kShort:
      return saturated<std::int16_t>(values, type);
    case at::kUInt16:
      return saturated<std::uint16_t>(values, type);
    default:
      refuse("quantisation to ", c10::toString(type));
  }
}

Tensors quantize(const Call& c) {
  const Tensor& x = c.in(0);
  const bool has_zero = c.has(2);
  Tensor y = at::round(at::div(x, spread(c, 1, x)));
  if (has_zero) y = at::add(y, spread(c, 2, x).to(at::kFloat));
  return {saturated_to(y, has_zero ? c.in(2).scalar_type() : at::kByte)};
}

Tensors dequantize(const Call& c) {
  const Tensor& x = c.in(0);
  Tensor y = x.to(at::kFloat);
  if (c.has(2)) y = at::sub(y, spread(c, 2, x).to(at::kFloat));
  return {at::mul(y, spread(c, 1, x))};
}

Tensors dynamic_quantize(const Call& c) {
  const Tensor& x = c.in(0);
  const Tensor low = at::clamp(at::amin(x), std::nullopt, 0);
  const Tensor high = at::clamp(at::amax(x), 0);
  const Tensor scale = at::div(at::sub(high, low), 255.0);
  const Tensor zero = at::clamp(at::round(at::div(low.neg(), scale)), 0, 255);
  const Tensor y = at::clamp(at::add(at::round(at::div(x, scale)), zero), 0, 255);
  return {y.to(at::kByte), scale, zero.to(at::kByte)};
}

// Input `i` less its zero point in input `zero`, which may be one value or one per place of `axis`.
Tensor shifted(const Call& c, std::size_t i, std::size_t zero, std::int64_t axis) {
  const Tensor x = c.in(i).to(at::kDouble);
  return c.has(zero) ? at::sub(x, along_axis(c.in(zero), x, axis).to(at::kDouble)) : x;
}

Tensors integer_product(const Call& c) {
  return {at::matmul(shifted(c, 0, 2, -2), shifted(c, 1, 3, -1)).to(at::kInt)};
}

Tensors integer_convolution(const Call& c) {
  return {convolved(c, shifted(c, 0, 2, 1), shifted(c, 1, 3, 0), std::nullopt).to(at::kInt)};
}

// A product in units of scale, in those of the result (scale in input 6, zero point in input 7 as
// operators with eight inputs have them).
Tensor requantised(const Call& c, const Tensor& product, const Tensor& scale) {
  const Tensor whole = at::round(at::mul(product, at::div(scale, c.in(6).to(at::kDouble))));
  return saturated_to(at::add(whole, c.in(7).to(at::kDouble)), c.in(7).scalar_type());
}

Tensors quantised_product(const Call& c) {
  const Tensor a = shifted(c, 0, 2, -2);
  const Tensor b = shifted(c, 3, 5, -1);
  const Tensor scale = at::mul(along_axis(c.in(1), a, -2).to(at::kDouble),
                               along_axis(c.in(4), b, -1).to(at::kDouble));
  return {requantised(c, at::matmul(a, b), scale)};
}

Tensors quantised_convolution(const Call& c) {
  const auto bias = c.has(8) ? std::optional(c.in(8).to(at::kDouble)) : std::nullopt;
  const Tensor sums = convolved(c, shifted(c, 0, 2, 1), shifted(c, 3, 5, 0), bias);
  const Tensor scale = at::mul(c.in(1), along_axis(c.in(4), sums, 1)).to(at::kDouble);
  return {requantised(c, sums, scale)};
}

// Sorted by name.
constexpr TorchOperator kQuantisedOperators[] = {
    {"ConvInteger", integer_convolution},
    {"DequantizeLinear", dequantize},
    {"DynamicQuantizeLinear", dynamic_quantize},
    {"MatMulInteger", integer_product},
    {"QLinearConv", quantised_convolution},
    {"QLinearMatMul", quantised_product},
    {"QuantizeLinear", quantize},
};

}  // namespace

std::span<const TorchOperator> quantised_operators() {
  return kQuantisedOperators;
}

}  // namespace mezzo::convert
