// Matrix products, convolutions, pooling and normalisations.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/div.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "convert/torch/call.h"

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

/// The window of a convolution or pooling, with the padding at both ends of every spatial axis.
struct Window {
  Dims kernel, strides, dilations, before, after;
};

Window window_of(const Call& c, const Dims& kernel, bool ceil_mode = false) {
  const std::size_t rank = kernel.size();
  const auto given = [&](std::string_view name) {
    Dims values = c.integers(name);
    return values.empty() ? Dims(rank, 1) : values;
  };
  Window w{kernel, given("strides"), given("dilations"), Dims(rank, 0), Dims(rank, 0)};
  const std::string automatic = c.text("auto_pad", "NOTSET");
  const Dims pads = c.integers("pads");
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t size = c.in(0).size(static_cast<std::int64_t>(i) + 2);
    const std::int64_t reach = (kernel[i] - 1) * w.dilations[i] + 1;
    if (automatic.starts_with("SAME")) {
      const std::int64_t out = (size + w.strides[i] - 1) / w.strides[i];
      const std::int64_t total = std::max<std::int64_t>((out - 1) * w.strides[i] + reach - size, 0);
      w.before[i] = automatic == "SAME_LOWER" ? total - total / 2 : total / 2;
      w.after[i] = total - w.before[i];
    } else if (pads.size() == 2 * rank && automatic != "VALID") {
      w.before[i] = pads[i];
      w.after[i] = pads[i + rank];
    }
    // Rounding up takes one more window, if it begins inside the input or its padding in front.
    const std::int64_t all = size + w.before[i] + w.after[i];
    const std::int64_t rest = all < reach ? 0 : (all - reach) % w.strides[i];
    const std::int64_t next = all - reach - rest + w.strides[i];
    if (ceil_mode && rest != 0 && next < size + w.before[i]) w.after[i] += w.strides[i] - rest;
  }
  return w;
}

Tensor padded(const Tensor& x, const Window& w, double value) {
  Dims pads;
  for (std::size_t i = w.before.size(); i-- > 0;) {
    pads.push_back(w.before[i]);
    pads.push_back(w.after[i]);
  }
  const bool any = std::ranges::any_of(pads, [](std::int64_t pad) { return pad != 0; });
  return any ? at::constant_pad_nd(x, pads, value) : x;
}

Tensors convolution(const Call& c) {
  const Tensor& weight = c.in(1);
  Dims kernel = c.integers("kernel_shape");
  if (kernel.empty()) kernel.assign(weight.sizes().begin() + 2, weight.sizes().end());
  const Window w = window_of(c, kernel);
  const Dims zeros(kernel.size(), 0);
  return {at::convolution(padded(c.in(0), w, 0), weight,
                          c.has(2) ? std::optional(c.in(2)) : std::nullopt, w.strides, zeros,
                          w.dilations, false, zeros, c.integer("group", 1))};
}

Tensors transposed_convolution(const Call& c) {
  const Tensor& x = c.in(0);
  const Tensor& weight = c.in(1);
  Dims kernel = c.integers("kernel_shape");
  if (kernel.empty()) kernel.assign(weight.sizes().begin() + 2, weight.sizes().end());
  Window w = window_of(c, kernel);
  const std::size_t rank = kernel.size();
  Dims extra = c.integers("output_padding");
  if (extra.empty()) extra.assign(rank, 0);
  const Dims shape = c.integers("output_shape");
  const std::string automatic = c.text("auto_pad", "NOTSET");
  // The full result, from which the padding is cut.
  const Dims zeros(rank, 0);
  Tensor y = at::convolution(x, weight, c.has(2) ? std::optional(c.in(2)) : std::nullopt, w.strides,
                             zeros, w.dilations, true, zeros, c.integer("group", 1));
  for (std::size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    if (!shape.empty() || automatic.starts_with("SAME")) {
      const std::int64_t wanted =
          shape.empty() ? x.size(axis) * w.strides[i] : shape[shape.size() - rank + i];
      const std::int64_t total = y.size(axis) + extra[i] - wanted;
      // What is missing is added behind.
      w.before[i] = total < 0 ? 0 : automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.after[i] = total - w.before[i];
    }
    w.before[i] = -w.before[i];
    w.after[i] = extra[i] - w.after[i];
  }
  // What is added behind the result is the bias, as convolution gives it where nothing reaches.
  if (c.has(2)) {
    Dims per_channel(rank + 2, 1);
    per_channel[1] = -1;
    const Tensor bias = c.in(2).reshape(per_channel);
    return {at::add(padded(at::sub(y, bias), w, 0), bias)};
  }
  return {padded(y, w, 0)};
}

Tensor average(const Tensor& x, const Window& w) {
  const Dims zeros(w.kernel.size(), 0);
  switch (w.kernel.size()) {
    case 1:
      return at::avg_pool1d(x, w.kernel, w.strides, zeros, false, true);
    case 2:
      return at::avg_pool2d(x, w.kernel, w.strides, zeros, false, true);
    case 3:
      return at::avg_pool3d(x, w.kernel, w.strides, zeros, false, true);
    default:
      refuse("pooling over ", w.kernel.size(), " axes");
  }
}

void refuse_dilations(const Window& w) {
  if (std::ranges::any_of(w.dilations, [](std::int64_t d) { return d != 1; }))
    refuse("dilated average pooling");
}

Tensors average_pool(const Call& c) {
  const Tensor& x = c.in(0);
  const bool ceil_mode = c.integer("ceil_mode", 0) != 0;
  const Window w = window_of(c, c.integers("kernel_shape"), ceil_mode);
  refuse_dilations(w);
  const Tensor sums = average(padded(x, w, 0), w);
  // Padding that was asked for may count; what rounding up adds never does.
  Window counted = w;
  Tensor ones = at::ones(x.sizes(), x.options());
  if (c.integer("count_include_pad", 0) != 0) {
    const Window asked = window_of(c, c.integers("kernel_shape"));
    ones = padded(ones, asked, 1);
    for (std::size_t i = 0; i < w.kernel.size(); ++i) {
      counted.before[i] = 0;
      counted.after[i] = w.after[i] - asked.after[i];
    }
  }
  return {at::div(sums, average(padded(ones, counted, 0), w))};
}

Tensors lp_pool(const Call& c) {
  const Window w = window_of(c, c.integers("kernel_shape"), c.integer("ceil_mode", 0) != 0);
  refuse_dilations(w);
  const auto p = static_cast<double>(c.integer("p", 2));
  std::int64_t count = 1;
  for (const std::int64_t size : w.kernel) count *= size;
  const Tensor powers = at::pow(at::abs(padded(c.in(0), w, 0)), p);
  return {at::pow(at::mul(average(powers, w), static_cast<double>(count)), 1 / p)};
}

Tensors max_pool(const Call& c) {
  const Tensor& x = c.in(0);
  const Window w = window_of(c, c.integers("kernel_shape"), c.integer("ceil_mode", 0) != 0);
  if (c.outputs() > 1) refuse("indices of max pooling");
  const bool is_float = at::isFloatingType(x.scalar_type());
  const Tensor wide = is_float ? x : x.to(at::kFloat);
  const Tensor in = padded(wide, w, -std::numeric_limits<double>::infinity());
  const Dims zeros(w.kernel.size(), 0);
  Tensor y;
  switch (w.kernel.size()) {
    case 1:
      y = at::max_pool1d(in, w.kernel, w.strides, zeros, w.dilations);
      break;
    case 2:
      y = std::get<0>(at::max_pool2d_with_indices(in, w.kernel, w.strides, zeros, w.dilations));
      break;
    case 3:
      y = std::get<0>(at::max_pool3d_with_indices(in, w.kernel, w.strides, zeros, w.dilations));
      break;
    default:
      refuse("pooling over ", w.kernel.size(), " axes");
  }
  return {y.to(x.scalar_type())};
}

Dims spatial(const Tensor& x, std::int64_t first = 2) {
  Dims axes(static_cast<std::size_t>(std::max<std::int64_t>(x.dim() - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

Tensors global_average(const Call& c) {
  return {at::mean(c.in(0), spatial(c.in(0)), true)};
}
Tensors global_max(const Call& c) {
  return {at::amax(c.in(0), spatial(c.in(0)), true)};
}

// A vector per channel, to be broadcast over batch and space.
Tensor per_channel(const Tensor& values, const Tensor& x) {
  Dims shape(static_cast<std::size_t>(x.dim()), 1);
  if (x.dim() > 1) shape[1] = -1;
  return values.to(x.scalar_type()).reshape(shape);
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
  const Tensor& x = c.in(0);
  const Tensor y = normalised(x, spatial(x), c.number("epsilon", 1e-5));
  return {at::add(at::mul(y, per_channel(c.in(1), x)), per_channel(c.in(2), x))};
}

Tensors layer_normalization(const Call& c) {
  const Tensor& x = c.in(0);
  Tensor mean;
  Tensor inverse;
  const Dims axes = spatial(x, wrapped(c.integer("axis", -1), x.dim()));
  Tensor y = at::mul(normalised(x, axes, c.number("epsilon", 1e-5), &mean, &inverse), c.in(1));
  if (c.has(2)) y = at::add(y, c.in(2));
  return {y, mean, inverse};
}

Tensors rms_normalization(const Call& c) {
  const Tensor& x = c.in(0);
  const Dims axes = spatial(x, wrapped(c.integer("axis", -1), x.dim()));
  const Tensor power = at::mean(at::mul(x, x), axes, true);
  return {at::mul(at::mul(x, at::rsqrt(at::add(power, c.number("epsilon", 1e-5)))), c.in(1))};
}

Tensors group_normalization(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t groups = c.integer("num_groups", 1);
  const Tensor parts = x.reshape({x.size(0), groups, -1});
  const Tensor y = normalised(parts, {2}, c.number("epsilon", 1e-5)).reshape(x.sizes());
  const auto spread = [&](const Tensor& values) {  // until opset 20 there was one per group
    return values.numel() == x.size(1) ? values : values.repeat_interleave(x.size(1) / groups);
  };
  return {at::add(at::mul(y, per_channel(spread(c.in(1)), x)), per_channel(spread(c.in(2)), x))};
}

Tensors mean_variance_normalization(const Call& c) {
  Dims axes = c.integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  const Tensor& x = c.in(0);
  const Tensor centred = at::sub(x, at::mean(x, axes, true));
  const Tensor spread = at::sqrt(at::mean(at::mul(centred, centred), axes, true));
  return {at::div(centred, at::add(spread, 1e-9))};
}

Tensors lp_normalization(const Call& c) {
  const Dims axis{wrapped(c.integer("axis", -1), c.in(0).dim())};
  return {at::div(c.in(0), at::linalg_vector_norm(c.in(0), c.integer("p", 2), axis, true))};
}

Tensors local_response(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t size = c.integer("size", 1);
  const Tensor squares = at::mul(x, x).movedim(1, -1);
  const Dims pads{(size - 1) / 2, size / 2};
  const Tensor sums = at::sum(at::constant_pad_nd(squares, pads, 0).unfold(-1, size, 1), {-1});
  const Tensor base =
      at::add(at::mul(sums.movedim(-1, 1), c.number("alpha", 1e-4) / static_cast<double>(size)),
              c.number("bias", 1.0));
  return {at::div(x, at::pow(base, c.number("beta", 0.75)))};
}

Tensors determinant(const Call& c) {
  return {at::linalg_det(c.in(0))};
}

// Sorted by name.
constexpr TorchOperator kOperators[] = {
    {"AveragePool", average_pool},
    {"BatchNormalization", batch_normalization},
    {"Conv", convolution},
    {"ConvTranspose", transposed_convolution},
    {"Det", determinant},
    {"Einsum", einsum},
    {"Gemm", gemm},
    {"GlobalAveragePool", global_average},
    {"GlobalMaxPool", global_max},
    {"GroupNormalization", group_normalization},
    {"InstanceNormalization", instance_normalization},
    {"LRN", local_response},
    {"LayerNormalization", layer_normalization},
    {"LpNormalization", lp_normalization},
    {"LpPool", lp_pool},
    {"MatMul", mat_mul},
    {"MaxPool", max_pool},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"RMSNormalization", rms_normalization},
};

}  // namespace

std::span<const TorchOperator> product_operators() {
  return kOperators;
}

}  // namespace mezzo::convert
