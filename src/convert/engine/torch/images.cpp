// Resizing and sampling of images.
#include <ATen/ops/add.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

/// How one axis is resized.
struct Axis {
  std::int64_t in = 0, out = 0;
  double scale = 1;
  double width = 0;           // of the output, before rounding
  double begin = 0, end = 1;  // of the region, for tf_crop_and_resize
};

double source_of(const std::string& transform, const Axis& axis, std::int64_t i) {
  const auto x = static_cast<double>(i);
  const auto in = static_cast<double>(axis.in);
  const double out = axis.width;
  if (transform == "asymmetric") return x / axis.scale;
  if (transform == "align_corners") return out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (transform == "pytorch_half_pixel") return out == 1 ? 0 : (x + 0.5) / axis.scale - 0.5;
  if (transform == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (transform == "half_pixel_symmetric") {
    const double adjusted = out / (axis.scale * in);
    const double center = in / 2;
    return center * (1 - adjusted) + (x + 0.5) / axis.scale - 0.5;
  }
  if (transform == "tf_crop_and_resize") {
    if (out == 1) return 0.5 * (axis.begin + axis.end) * (in - 1);
    return axis.begin * (in - 1) + x * (axis.end - axis.begin) * (in - 1) / (out - 1);
  }
  return (x + 0.5) / axis.scale - 0.5;
}

double nearest_of(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);
}

double cubic_weight(double a, double t) {
  t = std::fabs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/// The request of a resize beside its sizes.
struct Method {
  std::string mode, transform, nearest;
  double cubic = -0.75, outside_value = 0;
  bool excludes_outside = false, antialiases = false;
};

/// The input's positions that one output reads, with their weights: every mode is linear in them.
using Taps = std::vector<std::pair<std::int64_t, double>>;

Taps taps_of(const Method& m, const Axis& axis, std::int64_t i) {
  const double x = source_of(m.transform, axis, i);
  const auto place = [&](double at) {
    return static_cast<std::int64_t>(std::clamp<double>(at, 0, static_cast<double>(axis.in - 1)));
  };
  if (m.mode == "nearest") return {{place(nearest_of(m.nearest, x)), 1}};
  const bool is_cubic = m.mode == "cubic";
  const double stretch = m.antialiases && axis.scale < 1 ? 1 / axis.scale : 1;
  const double reach = (is_cubic ? 2.0 : 1.0) * stretch;
  double sum = 0;
  Taps taps;
  for (double at = std::floor(x - reach); at <= std::ceil(x + reach); ++at) {
    const double t = (at - x) / stretch;
    double weight = is_cubic ? cubic_weight(m.cubic, t) : std::max(0.0, 1 - std::fabs(t));
    const bool outside = at < 0 || at > static_cast<double>(axis.in - 1);
    if (outside && m.excludes_outside) weight = 0;
    sum += weight;
    if (weight != 0) taps.emplace_back(place(at), weight);
  }
  for (auto& [at, weight] : taps) weight = sum == 0 ? weight : weight / sum;
  return taps;
}

// The share of tap `k` in each output: no value of the input times zero, which for an infinite one
// would be NaN in outputs that do not read it.
Tensor tapped(const Tensor& x, std::int64_t dim, const std::vector<Taps>& taps, std::size_t k) {
  std::vector<std::int64_t> places;
  std::vector<double> weights;
  for (const Taps& each : taps) {
    places.push_back(k < each.size() ? each[k].first : each.empty() ? 0 : each[0].first);
    weights.push_back(k < each.size() ? each[k].second : 0);
  }
  const auto count = static_cast<std::int64_t>(taps.size());
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(dim)] = count;
  const Tensor index = at::from_blob(places.data(), {count}, at::TensorOptions().dtype(at::kLong));
  const Tensor factor =
      at::from_blob(weights.data(), shape, at::TensorOptions().dtype(at::kDouble));
  const Tensor chosen = at::index_select(x, dim, index);
  const bool is_copy = std::ranges::all_of(weights, [](double weight) { return weight == 1; });
  return is_copy ? chosen
                 : at::mul(chosen, factor.to(x.scalar_type())).masked_fill(factor.eq(0), 0);
}

Tensor resized_axis(const Tensor& x, std::int64_t dim, const Method& m, const Axis& axis) {
  std::vector<Taps> taps;
  std::size_t most = 1;
  std::vector<std::int64_t> outside;
  for (std::int64_t i = 0; i < axis.out; ++i) {
    taps.push_back(taps_of(m, axis, i));
    most = std::max(most, taps.back().size());
    const double at = source_of(m.transform, axis, i);
    if (m.transform == "tf_crop_and_resize" && (at < 0 || at > static_cast<double>(axis.in - 1)))
      outside.push_back(i);
  }
  Tensor y;
  for (std::size_t k = 0; k < most; ++k) {
    const Tensor part = tapped(x, dim, taps, k);
    y = y.defined() ? at::add(y, part) : part;
  }
  for (const std::int64_t i : outside) y.select(dim, i).fill_(m.outside_value);
  return y;
}

std::vector<double> numbers(const Tensor& tensor) {
  const Tensor wide = tensor.to(at::kDouble).contiguous();
  const auto* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

// Scales of all axes; ones where `axes` names others.
std::vector<Axis> axes_of(const Call& c, bool is_upsample) {
  const Tensor& x = c.in(0);
  const auto rank = static_cast<std::size_t>(x.dim());
  const bool is_old = is_upsample || c.opset() < 11;
  std::vector<std::int64_t> which = c.integers("axes");
  for (std::size_t i = 0; which.size() < rank && !c.is_given("axes"); ++i)
    which.push_back(static_cast<std::int64_t>(i));
  std::vector<Axis> axes(rank);
  for (std::size_t i = 0; i < rank; ++i)
    axes[i].in = axes[i].out = x.size(static_cast<std::int64_t>(i));
  for (Axis& axis : axes) axis.width = static_cast<double>(axis.out);
  const std::size_t scale_input = is_old ? 1 : 2;
  const bool has_scales = c.has(scale_input) && c.in(scale_input).numel() != 0;
  const std::vector<double> scales =
      has_scales ? numbers(c.in(scale_input)) : std::vector<double>();
  const std::vector<std::int64_t> sizes =
      !is_old && !has_scales ? c.list(3) : std::vector<std::int64_t>();
  const std::vector<double> region = !is_old && c.has(1) ? numbers(c.in(1)) : std::vector<double>();
  for (std::size_t k = 0; k < which.size(); ++k) {
    Axis& axis = axes[static_cast<std::size_t>(wrapped(which[k], x.dim()))];
    if (has_scales) {
      axis.scale = scales.at(k);
      axis.width = static_cast<double>(axis.in) * axis.scale;
      axis.out = static_cast<std::int64_t>(std::floor(axis.width));
    } else {
      axis.out = sizes.at(k);
      axis.width = static_cast<double>(axis.out);
      axis.scale = static_cast<double>(axis.out) / static_cast<double>(axis.in);
    }
    if (region.size() == 2 * which.size()) {
      axis.begin = region[k];
      axis.end = region[k + which.size()];
      if (has_scales && c.text("coordinate_transformation_mode", "") == "tf_crop_and_resize") {
        axis.out = static_cast<std::int64_t>(
            std::floor(static_cast<double>(axis.in) * (axis.end - axis.begin) * axis.scale));
      }
    }
  }
  return axes;
}

Tensors resize(const Call& c) {
  const bool is_upsample = c.op() == "Upsample";
  if (is_upsample && !c.has(1)) refuse("scales in attributes");
  if (c.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    refuse("a policy of aspect ratios");
  const bool is_old = is_upsample || c.opset() < 11;
  Method m;
  m.mode = c.text("mode", "nearest");
  m.transform = c.text("coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel");
  m.nearest = c.text("nearest_mode", is_old ? "floor" : "round_prefer_floor");
  m.cubic = c.number("cubic_coeff_a", -0.75);
  m.outside_value = c.number("extrapolation_value", 0);
  m.excludes_outside = c.integer("exclude_outside", 0) != 0;
  m.antialiases = c.integer("antialias", 0) != 0;
  const std::vector<Axis> axes = axes_of(c, is_upsample);
  Tensor x = at::isFloatingType(c.in(0).scalar_type()) ? c.in(0) : c.in(0).to(at::kDouble);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool stays = axes[i].in == axes[i].out && m.transform != "tf_crop_and_resize";
    if (!stays) x = resized_axis(x, static_cast<std::int64_t>(i), m, axes[i]);
  }
  return {x.to(c.in(0).scalar_type())};
}

Tensors grid_sample(const Call& c) {
  const std::string mode = c.text("mode", "bilinear");
  const std::string padding = c.text("padding_mode", "zeros");
  const std::int64_t way = mode == "nearest" ? 1 : mode == "bicubic" || mode == "cubic" ? 2 : 0;
  const std::int64_t border = padding == "border" ? 1 : padding == "reflection" ? 2 : 0;
  return {at::grid_sampler(c.in(0), c.in(1), way, border, c.integer("align_corners", 0) != 0)};
}

Tensors affine_grid(const Call& c) {
  return {at::affine_grid_generator(c.in(0), c.list(1), c.integer("align_corners", 0) != 0)};
}

// Columns of overlapping blocks, added up where they overlap.
Tensors columns_to_image(const Call& c) {
  const std::vector<std::int64_t> size = c.list(1);
  const std::vector<std::int64_t> block = c.list(2);
  if (size.size() != 2 || block.size() != 2) refuse("columns of other than planes");
  const auto per_axis = [&](std::string_view name, std::int64_t otherwise) {
    std::vector<std::int64_t> values = c.integers(name);
    values.resize(name == "pads" ? 4 : 2, otherwise);
    return values;
  };
  const std::vector<std::int64_t> pads = per_axis("pads", 0);
  if (pads[0] != pads[2] || pads[1] != pads[3]) refuse("other padding behind than in front");
  return {at::col2im(c.in(0), size, block, per_axis("dilations", 1), {pads[0], pads[1]},
                     per_axis("strides", 1))};
}

// Sorted by name.
constexpr TorchOperator kImagesOperators[] = {
    {"AffineGrid", affine_grid}, {"Col2Im", columns_to_image}, {"GridSample", grid_sample},
    {"Resize", resize},          {"Upsample", resize},
};

}  // namespace

std::span<const TorchOperator> image_operators() {
  return kImagesOperators;
}

}  // namespace mezzo::convert
