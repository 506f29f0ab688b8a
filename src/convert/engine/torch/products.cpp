// Matrix products and normalisations.
#include <ATen/ops/add.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <numeric>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;
using Dims = std::vector<std::int64_t>;

Tensors mat_mul(const Call& c) {
  return {at::matmul(c.in(0), c.in(1))};
}

Tensors gemm(const Call& c) {
  const Tensor a = c.integer("transA", 0) != 0 ? c.in(0).transpose(0, 1) : c.in(0);
  const Tensor b = c.integer("transB", 0) != 0 ? c.in(1).transpose(0, 1) : c.in(1);
  const double alpha = c.number("alpha", 1.0);
  const double beta = c.number("beta", 1.0);
  Tensor y = at::matmul(a, b);
  if (alpha != 1.0) y = at::mul(y, alpha);
  if (c.has(2) && beta != 0.0) y = at::add(y, beta == 1.0 ? c.in(2) : at::mul(c.in(2), beta));
  return {y};
}

Tensors einsum(const Call& c) {
  Tensors operands;
  for (std::size_t i = 0; i < c.inputs(); ++i) operands.push_back(c.in(i));
  return {at::einsum(c.text("equation", ""), operands)};
}

Dims spatial(const Tensor& x, std::int64_t first = 2) {
  Dims axes(static_cast<std::size_t>(std::max<std::int64_t>(x.dim() - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// A vector per channel, to be broadcast over batch and space.
Tensor per_channel(const Tensor& values, const Tensor& x) {
  Dims shape(static_cast<std::size_t>(x.dim()), 1);
  if (x.dim() > 1) shape[1] = -1;
  return values.to(x.scalar_type()).reshape(shape);
}

// Squares of float32 neither overflow nor vanish in float64, in which all norms are computed.
Tensor in_float64(const Tensor& x) {
  return x.to(at::kDouble);
}

Tensor normalised(const Tensor& x, const Dims& axes, double eps, Tensor* mean = nullptr,
                  Tensor* inverse = nullptr) {
  const Tensor middle = at::mean(x, axes, true);
  const Tensor centred = at::sub(x, middle);
  const Tensor scale = at::rsqrt(at::add(at::mean(at::mul(centred, centred), axes, true), eps));
  if (mean != nullptr) *mean = middle;
  if (inverse != nullptr) *inverse = scale;
  return at::mul(centred, scale);
}

Tensors batch_normalization(const Call& c) {
  const Tensor& x = c.in(0);
  const double eps = c.number("epsilon", 1e-5);
  const bool trains = c.opset() >= 14 ? c.integer("training_mode", 0) != 0 : c.outputs() > 1;
  const bool is_ancient = c.opset() < 7 && c.integer("is_test", 0) == 0 && c.outputs() > 1;
  Tensor mean = c.in(3);
  Tensor variance = c.in(4);
  Tensors more;
  if (trains || is_ancient) {
    if (c.opset() < 14) refuse("batch norm of old opsets in training");
    Dims axes = spatial(x);
    axes.insert(axes.begin(), 0);
    const double momentum = c.number("momentum", 0.9);
    const Tensor now = at::mean(x, axes);
    const Tensor spread =
        at::mean(at::mul(at::sub(x, per_channel(now, x)), at::sub(x, per_channel(now, x))), axes);
    more = {at::add(at::mul(mean, momentum), at::mul(now, 1 - momentum)),
            at::add(at::mul(variance, momentum), at::mul(spread, 1 - momentum))};
    mean = now;
    variance = spread;
  }
  const Tensor scale = at::mul(c.in(1), at::rsqrt(at::add(variance, eps)));
  const Tensor y = at::add(at::mul(at::sub(x, per_channel(mean, x)), per_channel(scale, x)),
                           per_channel(c.in(2), x));
  Tensors all{y};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Tensors instance_normalization(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  const Tensor y = normalised(x, spatial(x), c.number("epsilon", 1e-5));
  return {at::add(at::mul(y, per_channel(c.in(1), x)), per_channel(c.in(2), x))
              .to(c.in(0).scalar_type())};
}

Tensors layer_normalization(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  Tensor mean;
  Tensor inverse;
  const Dims axes = spatial(x, wrapped(c.integer("axis", -1), x.dim()));
  Tensor y = at::mul(normalised(x, axes, c.number("epsilon", 1e-5), &mean, &inverse), c.in(1));
  if (c.has(2)) y = at::add(y, c.in(2));
  const at::ScalarType type = c.in(0).scalar_type();
  return {y.to(type), mean.to(type), inverse.to(type)};
}

Tensors rms_normalization(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  const Dims axes = spatial(x, wrapped(c.integer("axis", -1), x.dim()));
  const Tensor power = at::mean(at::mul(x, x), axes, true);
  return {at::mul(at::mul(x, at::rsqrt(at::add(power, c.number("epsilon", 1e-5)))), c.in(1))
              .to(c.in(0).scalar_type())};
}

Tensors group_normalization(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  const std::int64_t groups = c.integer("num_groups", 1);
  const Tensor parts = x.reshape({x.size(0), groups, -1});
  const Tensor y = normalised(parts, {2}, c.number("epsilon", 1e-5)).reshape(x.sizes());
  const auto spread = [&](const Tensor& values) {  // until opset 20 there was one per group
    return values.numel() == x.size(1) ? values : values.repeat_interleave(x.size(1) / groups);
  };
  return {at::add(at::mul(y, per_channel(spread(c.in(1)), x)), per_channel(spread(c.in(2)), x))
              .to(c.in(0).scalar_type())};
}

Tensors mean_variance_normalization(const Call& c) {
  Dims axes = c.integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  const Tensor x = in_float64(c.in(0));
  const Tensor centred = at::sub(x, at::mean(x, axes, true));
  const Tensor spread = at::sqrt(at::mean(at::mul(centred, centred), axes, true));
  return {at::div(centred, at::add(spread, 1e-9)).to(c.in(0).scalar_type())};
}

// Zeros stay zeros, though their norm is none to divide by.
Tensors lp_normalization(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  const Dims axis{wrapped(c.integer("axis", -1), x.dim())};
  const Tensor norm = at::linalg_vector_norm(x, c.integer("p", 2), axis, true);
  return {at::div(x, norm.masked_fill(norm.eq(0), 1)).to(c.in(0).scalar_type())};
}

Tensors local_response(const Call& c) {
  const Tensor x = in_float64(c.in(0));
  const std::int64_t size = c.integer("size", 1);
  const Tensor squares = at::mul(x, x).movedim(1, -1);
  const Dims pads{(size - 1) / 2, size / 2};
  const Tensor sums = at::sum(at::constant_pad_nd(squares, pads, 0).unfold(-1, size, 1), {-1});
  const Tensor base =
      at::add(at::mul(sums.movedim(-1, 1), c.number("alpha", 1e-4) / static_cast<double>(size)),
              c.number("bias", 1.0));
  return {at::div(x, at::pow(base, c.number("beta", 0.75))).to(c.in(0).scalar_type())};
}

Tensors determinant(const Call& c) {
  return {at::linalg_det(c.in(0))};
}

// Sorted by name.
constexpr TorchOperator kProductsOperators[] = {
    {"BatchNormalization", batch_normalization},
    {"Det", determinant},
    {"Einsum", einsum},
    {"Gemm", gemm},
    {"GroupNormalization", group_normalization},
    {"InstanceNormalization", instance_normalization},
    {"LRN", local_response},
    {"LayerNormalization", layer_normalization},
    {"LpNormalization", lp_normalization},
    {"MatMul", mat_mul},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"RMSNormalization", rms_normalization},
};

}  // namespace

std::span<const TorchOperator> product_operators() {
  return kProductsOperators;
}

}  // namespace mezzo::convert
