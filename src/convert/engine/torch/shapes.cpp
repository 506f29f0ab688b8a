// Operators that move values without looking at them.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;
using Dims = std::vector<std::int64_t>;

Tensors reshape(const Call& c) {
  Dims shape = c.integers("shape", 1);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && c.integer("allowzero", 0) == 0)
      shape[i] = c.in(0).size(static_cast<std::int64_t>(i));
  }
  return {c.in(0).reshape(shape)};
}

Tensors flatten(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 1), x.dim());
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  for (std::int64_t i = 0; i < x.dim(); ++i) (i < axis ? rows : columns) *= x.size(i);
  return {x.reshape({rows, columns})};
}

Tensors squeeze(const Call& c) {
  Dims axes = c.integers("axes", 1);
  Tensor x = c.in(0);
  if (axes.empty()) return {x.squeeze()};
  for (std::int64_t& axis : axes) axis = wrapped(axis, x.dim());
  std::ranges::sort(axes, std::greater<>());
  for (const std::int64_t axis : axes) x = x.squeeze(axis);
  return {x};
}

Tensors unsqueeze(const Call& c) {
  Dims axes = c.integers("axes", 1);
  Tensor x = c.in(0);
  const std::int64_t rank = x.dim() + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = wrapped(axis, rank);
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) x = x.unsqueeze(axis);
  return {x};
}

Tensors transpose(const Call& c) {
  Dims order = c.integers("perm");
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(c.in(0).dim()));
    std::iota(order.rbegin(), order.rend(), 0);
  }
  return {c.in(0).permute(order)};
}

// Broadcasting goes both ways: a one in the wanted shape keeps the input's size.
Tensors expand(const Call& c) {
  const Tensor& x = c.in(0);
  Dims shape = c.list(1);
  while (static_cast<std::int64_t>(shape.size()) < x.dim()) shape.insert(shape.begin(), 1);
  const std::int64_t extra = static_cast<std::int64_t>(shape.size()) - x.dim();
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    auto& wanted = shape[static_cast<std::size_t>(i + extra)];
    if (wanted == 1) wanted = x.size(i);
  }
  return {x.expand(shape)};
}

Tensors tile(const Call& c) {
  return {c.in(0).repeat(c.list(1))};
}

Tensors concat(const Call& c) {
  Tensors parts;
  for (std::size_t i = 0; i < c.inputs(); ++i) parts.push_back(c.in(i));
  return {at::cat(parts, wrapped(c.integer("axis", 1), parts.at(0).dim()))};
}

Tensors split(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 0), x.dim());
  Dims sizes = c.integers("split", 1);
  if (sizes.empty()) {
    const auto parts = c.integer("num_outputs", static_cast<std::int64_t>(c.outputs()));
    const std::int64_t size = (x.size(axis) + parts - 1) / parts;
    for (std::int64_t left = x.size(axis), i = 0; i < parts; ++i, left -= size)
      sizes.push_back(std::min(size, left));
  }
  return x.split_with_sizes(sizes, axis);
}

Tensors slice(const Call& c) {
  Tensor x = c.in(0);
  const bool is_old = c.is_given("starts");
  const Dims starts = c.integers("starts", 1);
  const Dims ends = c.integers("ends", 2);
  Dims axes = is_old ? c.integers("axes") : c.has(3) ? c.list(3) : Dims();
  const Dims steps = !is_old && c.has(4) ? c.list(4) : Dims(starts.size(), 1);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = wrapped(axes[i], x.dim());
    const std::int64_t size = x.size(axis);
    const bool back = steps[i] < 0;
    const auto place = [&](std::int64_t at) {
      return std::clamp(at < 0 ? at + size : at, back ? std::int64_t{-1} : 0,
                        back ? size - 1 : size);
    };
    const std::int64_t begin = std::max<std::int64_t>(place(starts[i]), 0);
    const std::int64_t end = back && ends[i] < -size ? -1 : place(ends[i]);
    const std::int64_t length = back ? begin - end : end - begin;
    const std::int64_t stride = std::abs(steps[i]);
    const std::int64_t count = length <= 0 || size == 0 ? 0 : (length + stride - 1) / stride;
    if (count == 0) {
      x = x.narrow(axis, 0, 0);
      continue;
    }
    const Tensor index = at::arange(count, at::kLong).mul(steps[i]).add(begin);
    x = at::index_select(x, axis, index);
  }
  return {x};
}

// Indices of a padded axis: the border, or the reflected or repeated inside.
Tensor padded_axis(const Tensor& x, std::int64_t axis, std::int64_t before, std::int64_t after,
                   const std::string& mode) {
  const std::int64_t size = x.size(axis);
  std::vector<std::int64_t> index;
  for (std::int64_t i = -before; i < size + after; ++i) {
    std::int64_t at = i;
    if (mode == "edge") at = std::clamp<std::int64_t>(i, 0, size - 1);
    if (mode == "wrap") at = (i % size + size) % size;
    if (mode == "reflect" && size > 1) {
      const std::int64_t period = 2 * (size - 1);
      at = (i % period + period) % period;
      at = at < size ? at : period - at;
    }
    index.push_back(std::clamp<std::int64_t>(at, 0, size - 1));
  }
  return at::index_select(x, axis, at::tensor(index, at::kLong));
}

Tensors pad(const Call& c) {
  Tensor x = c.in(0);
  const std::string mode = c.text("mode", "constant");
  const char* old_name = c.is_given("paddings") ? "paddings" : "pads";
  const Dims pads = c.integers(old_name, 1);
  Dims axes = c.has(3) ? c.list(3) : Dims();
  if (axes.empty()) {
    axes.resize(pads.size() / 2);
    std::iota(axes.begin(), axes.end(), 0);
  }
  at::Scalar value = c.number("value", 0);
  if (c.has(2) && c.in(2).numel() == 1) value = c.in(2).item();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = wrapped(axes[i], x.dim());
    std::int64_t before = pads[i];
    std::int64_t after = pads[i + axes.size()];
    const std::int64_t cut_front = std::max<std::int64_t>(-before, 0);
    const std::int64_t cut_back = std::max<std::int64_t>(-after, 0);
    x = x.narrow(axis, cut_front, x.size(axis) - cut_front - cut_back);
    before = std::max<std::int64_t>(before, 0);
    after = std::max<std::int64_t>(after, 0);
    if (mode == "constant") {
      Dims all(static_cast<std::size_t>(2 * (x.dim() - axis)), 0);
      all[all.size() - 2] = before;
      all[all.size() - 1] = after;
      x = at::constant_pad_nd(x, all, value);
    } else {
      x = padded_axis(x, axis, before, after, mode);
    }
  }
  return {x};
}

Tensors shape(const Call& c) {
  const Dims sizes = c.in(0).sizes().vec();
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(wrapped(at, rank), 0, rank);
  };
  const std::int64_t begin = place(c.integer("start", 0));
  const std::int64_t end = std::max(begin, place(c.integer("end", rank)));
  return {at::tensor(Dims(sizes.begin() + begin, sizes.begin() + end), at::kLong)};
}

Tensors size(const Call& c) {
  return {at::scalar_tensor(c.in(0).numel(), at::kLong)};
}

Tensors constant_of_shape(const Call& c) {
  const Array* value = c.tensor("value");
  if (value == nullptr) return {at::zeros(c.list(0))};
  const Tensor one = tensor_of(*value);
  return {at::full(c.list(0), one.item(), one.scalar_type())};
}

Tensors range(const Call& c) {
  const at::ScalarType type = c.in(0).scalar_type();
  const at::Scalar start = c.in(0).item();
  const at::Scalar limit = c.in(1).item();
  const at::Scalar delta = c.in(2).item();
  const double count = std::ceil((limit.toDouble() - start.toDouble()) / delta.toDouble());
  const auto steps = static_cast<std::int64_t>(std::max(count, 0.0));
  return {at::arange(steps, at::kLong).to(type).mul(delta).add(start).to(type)};
}

Tensors eye_like(const Call& c) {
  const Tensor& x = c.in(0);
  Tensor ones = at::zeros(x.sizes(), x.scalar_type());
  ones.diagonal(c.integer("k", 0)).fill_(1);
  return {ones};
}

Tensors triangle(const Call& c) {
  const std::int64_t k = c.has(1) ? c.list(1).at(0) : 0;
  return {c.integer("upper", 1) != 0 ? at::triu(c.in(0), k) : at::tril(c.in(0), k)};
}

Tensors depth_to_space(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t b = c.integer("blocksize", 1);
  const std::int64_t depth = x.size(1) / (b * b);
  const bool by_column = c.text("mode", "DCR") == "CRD";
  const Tensor parts = by_column ? x.reshape({x.size(0), depth, b, b, x.size(2), x.size(3)})
                                 : x.reshape({x.size(0), b, b, depth, x.size(2), x.size(3)});
  const Dims order = by_column ? Dims{0, 1, 4, 2, 5, 3} : Dims{0, 3, 4, 1, 5, 2};
  return {parts.permute(order).reshape({x.size(0), depth, x.size(2) * b, x.size(3) * b})};
}

Tensors space_to_depth(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t b = c.integer("blocksize", 1);
  const Tensor parts = x.reshape({x.size(0), x.size(1), x.size(2) / b, b, x.size(3) / b, b});
  return {parts.permute({0, 3, 5, 1, 2, 4})
              .reshape({x.size(0), x.size(1) * b * b, x.size(2) / b, x.size(3) / b})};
}

// Sorted by name.
constexpr TorchOperator kShapesOperators[] = {
    {"Concat", concat},
    {"ConstantOfShape", constant_of_shape},
    {"DepthToSpace", depth_to_space},
    {"Expand", expand},
    {"EyeLike", eye_like},
    {"Flatten", flatten},
    {"Pad", pad},
    {"Range", range},
    {"Reshape", reshape},
    {"Shape", shape},
    {"Size", size},
    {"Slice", slice},
    {"SpaceToDepth", space_to_depth},
    {"Split", split},
    {"Squeeze", squeeze},
    {"Tile", tile},
    {"Transpose", transpose},
    {"Trilu", triangle},
    {"Unsqueeze", unsqueeze},
};

}  // namespace

std::span<const TorchOperator> shape_operators() {
  return kShapesOperators;
}

}  // namespace mezzo::convert
