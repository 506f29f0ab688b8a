// Convolutions and pooling.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/div.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "convert/engine/torch/convolution.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;
using Dims = std::vector<std::int64_t>;

/// The window of a convolution or pooling, with the padding at both ends of every spatial axis.
struct Window {
  Dims kernel, strides, dilations, before, after;
};

void check_sizes(std::string_view name, const Dims& sizes, std::size_t rank) {
  const bool are_positive = std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
  if (sizes.size() != rank || !are_positive) refuse(name, " is not ", rank, " positive numbers");
}

Window window_of(const Call& c, const Dims& kernel, bool ceil_mode = false) {
  const std::size_t rank = kernel.size();
  const auto given = [&](std::string_view name) {
    Dims values = c.integers(name);
    if (values.empty()) values.assign(rank, 1);
    check_sizes(name, values, rank);
    return values;
  };
  check_sizes("kernel_shape", kernel, rank);
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
    const std::int64_t free = all - reach;
    const std::int64_t rest = (free % w.strides[i] + w.strides[i]) % w.strides[i];
    const std::int64_t next = free - rest + w.strides[i];
    if (ceil_mode && rest != 0 && next >= 0 && next < size + w.before[i])
      w.after[i] += w.strides[i] - rest;
  }
  return w;
}

Dims kernel_of(const Call& c, const Tensor& weight) {
  if (weight.dim() < 3) refuse("a weight of ", weight.dim(), " axes");
  const Dims kernel = c.integers("kernel_shape");
  return kernel.empty() ? Dims(weight.sizes().begin() + 2, weight.sizes().end()) : kernel;
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
  return {convolved(c, c.in(0), c.in(1), c.has(2) ? std::optional(c.in(2)) : std::nullopt)};
}

Tensors transposed_convolution(const Call& c) {
  const Tensor& x = c.in(0);
  const Tensor& weight = c.in(1);
  const Dims kernel = kernel_of(c, weight);
  Window w = window_of(c, kernel);
  const std::size_t rank = kernel.size();
  Dims extra = c.integers("output_padding");
  if (extra.empty()) extra.assign(rank, 0);
  if (extra.size() != rank) refuse("output_padding for other than ", rank, " axes");
  const Dims shape = c.integers("output_shape");
  if (!shape.empty() && shape.size() < rank) refuse("output_shape for fewer than ", rank, " axes");
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
      // Missing padding is added behind.
      w.before[i] = total < 0 ? 0 : automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.after[i] = total - w.before[i];
    }
    w.before[i] = -w.before[i];
    w.after[i] = extra[i] - w.after[i];
  }
  // Padding behind the result is the bias, as convolution gives it where nothing reaches.
  if (c.has(2)) {
    Dims per_channel(rank + 2, 1);
    per_channel[1] = -1;
    const Tensor bias = c.in(2).reshape(per_channel);
    return {at::add(padded(at::sub(y, bias), w, 0), bias)};
  }
  return {padded(y, w, 0)};
}

// Sums of every window, axis by axis, in float64: nothing between overflows, and the digits of
// float32 stay. Paddings are values as any other here.
Tensor window_sums(const Tensor& x, const Window& w) {
  Tensor sums = x.to(at::kDouble);
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    const std::int64_t reach = (w.kernel[i] - 1) * w.dilations[i] + 1;
    const Tensor windows = sums.unfold(static_cast<std::int64_t>(i) + 2, reach, w.strides[i]);
    sums = windows.slice(-1, 0, reach, w.dilations[i]).sum(-1);
  }
  return sums;
}

Tensors average_pool(const Call& c) {
  const Tensor& x = c.in(0);
  const bool ceil_mode = c.integer("ceil_mode", 0) != 0;
  const Window w = window_of(c, c.integers("kernel_shape"), ceil_mode);
  const Tensor sums = window_sums(padded(x, w, 0), w);
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
  return {at::div(sums, window_sums(padded(ones, counted, 0), w)).to(x.scalar_type())};
}

/// The power of a norm, which the first opset has as a float.
double power_of(const Call& c) {
  return c.opset() < 2 ? c.number("p", 2) : static_cast<double>(c.integer("p", 2));
}

Tensors lp_pool(const Call& c) {
  const Window w = window_of(c, c.integers("kernel_shape"), c.integer("ceil_mode", 0) != 0);
  const double p = power_of(c);
  // Powers of float32 neither overflow nor vanish in float64.
  const Tensor powers = at::pow(at::abs(padded(c.in(0).to(at::kDouble), w, 0)), p);
  return {at::pow(window_sums(powers, w), 1 / p).to(c.in(0).scalar_type())};
}

// Positions in padded planes as positions in the whole tensor, rows first or (`by_column`) columns.
Tensor whole_positions(const Tensor& index, const Tensor& x, const Dims& padded_sizes,
                       const Window& w, bool by_column) {
  const std::size_t rank = w.kernel.size();
  std::int64_t plane = 1;
  for (std::size_t i = 0; i < rank; ++i) plane *= x.size(static_cast<std::int64_t>(i) + 2);
  Tensor rest = index;
  Tensor position = at::zeros(index.sizes(), index.options());
  std::int64_t step = by_column ? plane : 1;
  for (std::size_t i = rank; i-- > 0;) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) + 2);
    const Tensor here = at::sub(rest.remainder(padded_sizes[i]), w.before[i]);
    rest = at::div(rest, padded_sizes[i], "floor");
    if (by_column) step /= size;
    position = at::add(position, at::mul(here, step));
    if (!by_column) step *= size;
  }
  Dims planes(rank + 2, 1);
  planes[0] = x.size(0);
  planes[1] = x.size(1);
  return at::add(position,
                 at::mul(at::arange(x.size(0) * x.size(1), at::kLong), plane).reshape(planes));
}

Tensors max_pool(const Call& c) {
  const Tensor& x = c.in(0);
  const Window w = window_of(c, c.integers("kernel_shape"), c.integer("ceil_mode", 0) != 0);
  const bool is_float = at::isFloatingType(x.scalar_type());
  const Tensor wide = is_float ? x : x.to(at::kFloat);
  Tensor in = padded(wide, w, -std::numeric_limits<double>::infinity());
  const Dims padded_sizes(in.sizes().begin() + 2, in.sizes().end());
  Window over = w;
  if (w.kernel.size() == 1) {  // as a plane of one row
    in = in.unsqueeze(2);
    over.kernel.insert(over.kernel.begin(), 1);
    over.strides.insert(over.strides.begin(), 1);
    over.dilations.insert(over.dilations.begin(), 1);
  }
  const Dims zeros(over.kernel.size(), 0);
  if (zeros.size() != 2 && zeros.size() != 3) refuse("pooling over ", w.kernel.size(), " axes");
  auto [y, index] =
      zeros.size() == 2
          ? at::max_pool2d_with_indices(in, over.kernel, over.strides, zeros, over.dilations)
          : at::max_pool3d_with_indices(in, over.kernel, over.strides, zeros, over.dilations);
  if (w.kernel.size() == 1) {
    y = y.squeeze(2);
    index = index.squeeze(2);
  }
  if (c.outputs() < 2) return {y.to(x.scalar_type())};
  const bool by_column = c.integer("storage_order", 0) != 0;
  return {y.to(x.scalar_type()), whole_positions(index, x, padded_sizes, w, by_column)};
}

// The positions are those of a result without `output_shape`, which adds zeros behind.
Tensors max_unpool(const Call& c) {
  const Tensor& x = c.in(0);
  const Dims kernel = c.integers("kernel_shape");
  Dims strides = c.integers("strides");
  Dims pads = c.integers("pads");
  strides.resize(kernel.size(), 1);
  pads.resize(2 * kernel.size(), 0);
  Dims shape{x.size(0), x.size(1)};
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) + 2);
    shape.push_back((size - 1) * strides[i] + kernel[i] - pads[i] - pads[i + kernel.size()]);
  }
  const Tensor zeros = at::zeros(shape, x.options());
  const Tensor y = zeros.reshape({-1})
                       .scatter(0, c.in(1).to(at::kLong).reshape({-1}), x.reshape({-1}))
                       .reshape(shape);
  if (!c.has(2)) return {y};
  const Dims wanted = c.list(2);
  Dims behind;
  for (std::size_t i = wanted.size(); i-- > 0;) {
    behind.push_back(0);
    behind.push_back(wanted.at(i) - shape.at(i));
  }
  return {at::constant_pad_nd(y, behind, 0)};
}

Dims pooled_axes(const Tensor& x) {
  Dims axes(static_cast<std::size_t>(std::max<std::int64_t>(x.dim() - 2, 0)));
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

Tensors global_average(const Call& c) {
  const Tensor& x = c.in(0);
  return {at::mean(x.to(at::kDouble), pooled_axes(x), true).to(x.scalar_type())};
}
Tensors global_lp(const Call& c) {
  const Tensor& x = c.in(0);
  const double p = power_of(c);
  const Tensor sums = at::sum(at::pow(at::abs(x.to(at::kDouble)), p), pooled_axes(x), true);
  return {at::pow(sums, 1 / p).to(x.scalar_type())};
}
Tensors global_max(const Call& c) {
  return {at::amax(c.in(0), pooled_axes(c.in(0)), true)};
}

// Sorted by name.
constexpr TorchOperator kConvolutionsOperators[] = {
    {"AveragePool", average_pool},
    {"Conv", convolution},
    {"ConvTranspose", transposed_convolution},
    {"GlobalAveragePool", global_average},
    {"GlobalLpPool", global_lp},
    {"GlobalMaxPool", global_max},
    {"LpPool", lp_pool},
    {"MaxPool", max_pool},
    {"MaxUnpool", max_unpool},
};

}  // namespace

Tensor convolved(const Call& c, const Tensor& x, const Tensor& weight,
                 const std::optional<Tensor>& bias) {
  const Dims kernel = kernel_of(c, weight);
  const Window w = window_of(c, kernel);
  const Dims zeros(kernel.size(), 0);
  return at::convolution(padded(x, w, 0), weight, bias, w.strides, zeros, w.dilations, false, zeros,
                         c.integer("group", 1));
}

std::span<const TorchOperator> convolution_operators() {
  return kConvolutionsOperators;
}

}  // namespace mezzo::convert
