// Pooling, resizing, and other operators on images.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

std::vector<std::int64_t> for_axes(std::vector<std::int64_t> values, std::int64_t count) {
  if (values.size() == 1) values.resize(static_cast<std::size_t>(count), values[0]);
  return values;
}

/// Runs an operator that wants a batch on a tensor that may have none.
template <typename Say>
Names batched(C c, std::int64_t axes, const Say& say) {
  const bool has_batch = c.rank() == axes + 2;
  Names made = say(has_batch ? c.x() : c.unsqueezed(c.x(), {0}));
  if (has_batch) return made;
  for (std::string& name : made) name = c.squeezed(name, {0});
  return made;
}

OnnxAttributes window(C c, std::int64_t axes) {
  const std::vector<std::int64_t> kernel = for_axes(c.is("kernel_size"), axes);
  std::vector<std::int64_t> stride = c.is("stride");
  stride = stride.empty() ? kernel : for_axes(stride, axes);
  std::vector<std::int64_t> pads = for_axes(c.is("padding"), axes);
  pads.insert(pads.end(), pads.begin(), pads.end());
  return {{"kernel_shape", kernel},
          {"strides", stride},
          {"pads", pads},
          {"ceil_mode", std::int64_t{c.b("ceil_mode")}}};
}

/// The places of maxima, which count within one image in LibTorch and over all in ONNX.
std::string places_of_maxima(C c, const std::string& x, const std::string& places,
                             std::int64_t axes) {
  const std::string sizes = c.sizes(x, 2, 2 + axes);
  return c.one("Mod", {places, c.reduced("ReduceProd", sizes, {0}, true, 1)});
}

Names max_pool(C c, std::int64_t axes, bool indices) {
  OnnxAttributes attributes = window(c, axes);
  attributes["dilations"] = for_axes(c.is("dilation"), axes);
  return batched(c, axes, [&](const std::string& x) {
    if (!indices) return Names{c.one("MaxPool", {x}, attributes)};
    const Names made = c.g.ops("MaxPool", {x}, attributes, 2);
    return Names{made[0], places_of_maxima(c, x, made[1], axes)};
  });
}

/// Elements back at their places in images of another size.
Names max_unpool(C c, std::int64_t axes) {
  const std::int64_t before = c.rank() - axes;  // batch and channels, or channels
  std::vector<std::int64_t> flat(static_cast<std::size_t>(before), 0);
  flat.push_back(-1);
  const auto in_rows = [&](std::string_view name) {
    return c.one("Reshape", {c.x(name), c.g.ints(flat)});
  };
  const auto joined = [&](const std::string& sizes) {
    return c.one("Concat", {c.sizes(c.x(), 0, before), sizes}, {{"axis", std::int64_t{0}}});
  };
  const std::string sizes = c.list("output_size");
  const std::string zeros =
      c.one("ConstantOfShape", {joined(c.reduced("ReduceProd", sizes, {0}, true, 1))},
            {{"value", at::zeros({1}, at::TensorOptions(c.out_type()))}});
  const std::string made =
      c.one("ScatterElements", {zeros, in_rows("indices"), in_rows("self")}, {{"axis", before}});
  return {c.one("Reshape", {made, joined(sizes)})};
}

Names average_pool(C c, std::int64_t axes) {
  OnnxAttributes attributes = window(c, axes);
  const bool divides = c.has("divisor_override");
  if (divides && c.b("ceil_mode"))
    c.refuse("divisor_override with ceil_mode cannot be said in ONNX; leave one of them out");
  attributes["count_include_pad"] = std::int64_t{divides || c.b("count_include_pad")};
  return batched(c, axes, [&](const std::string& x) {
    const std::string y = c.one("AveragePool", {x}, attributes);
    if (!divides) return Names{y};
    double count = 1;
    for (const std::int64_t size : for_axes(c.is("kernel_size"), axes))
      count *= static_cast<double>(size);
    return Names{c.one("Mul", {y, c.constant(count / c.d("divisor_override"))})};
  });
}

/// The weights that average an axis into `out` places, [size, out]: place i takes what lies from
/// floor(i * size / out) to ceil((i + 1) * size / out).
std::string averaging_weights(C c, std::int64_t axis, std::int64_t out) {
  const std::int64_t fixed = c.fixed_size("self", axis);
  if (fixed >= 0) {
    const at::Tensor weights = at::zeros({fixed, out}, at::kDouble);
    for (std::int64_t i = 0; i < out; ++i) {
      const std::int64_t begin = i * fixed / out, end = ((i + 1) * fixed + out - 1) / out;
      weights.slice(0, begin, end).select(1, i).fill_(1.0 / static_cast<double>(end - begin));
    }
    return c.g.tensor(weights.to(c.out_type()));
  }
  std::vector<std::int64_t> places(static_cast<std::size_t>(out));
  std::iota(places.begin(), places.end(), 0);
  const std::string size = c.sizes(c.x(), axis, axis + 1), count = c.g.ints({out});
  const std::string begins = c.one("Mul", {c.g.ints(places), size});
  const std::string begin = c.one("Div", {begins, count});
  const std::string last = c.one("Add", {c.one("Add", {begins, size}), c.g.ints({out - 1})});
  const std::string end = c.one("Div", {last, count});
  const std::string all = c.one("Range", {c.g.integer(0), c.squeezed(size, {0}), c.g.integer(1)});
  const std::string from = c.unsqueezed(all, {1});
  const std::string inside =
      c.one("And", {c.one("GreaterOrEqual", {from, begin}), c.one("Less", {from, end})});
  return c.one("Div", {c.g.cast(inside, at::kBool, c.out_type()),
                       c.g.cast(c.one("Sub", {end, begin}), at::kLong, c.out_type())});
}

constexpr std::int64_t kAsGiven = -1;  // an axis that is not pooled

/// The sizes of the result of a pooling, where they are numbers.
std::vector<std::int64_t> pooled_sizes(C c, std::int64_t axes) {
  std::vector<std::int64_t> wanted;
  const std::vector<OnnxValue> given = c.arg("output_size").elements();
  const Call::Columns before = c.columns_of(c.arg("self")), after = c.columns_of_result();
  for (std::int64_t d = 0; d < axes; ++d) {
    const auto axis = static_cast<std::size_t>(c.rank() - axes + d);
    const bool same = before[axis] == after[axis];
    if (given.empty() && !same) return for_axes(c.is("output_size"), axes);
    if (same) {
      wanted.push_back(kAsGiven);
    } else if (const OnnxValue& size = given[given.size() == 1 ? 0 : static_cast<std::size_t>(d)];
               size.is_constant()) {
      wanted.push_back(size.to_int());
    } else {
      c.refuse("its argument 'output_size' follows from the model's inputs, and is not their size");
    }
  }
  return wanted;
}

/// Places of different lengths, and sizes that follow from inputs, as products with weights.
Names average_by_products(C c, const std::vector<std::int64_t>& wanted) {
  const std::int64_t rank = c.rank(), last = rank - 1;
  std::string x = c.x();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == kAsGiven) continue;
    const std::int64_t axis = rank - static_cast<std::int64_t>(wanted.size() - i);
    const std::string weights = averaging_weights(c, axis, wanted[i]);
    if (axis == last) {
      x = c.one("MatMul", {x, weights});
    } else if (axis == last - 1) {
      x = c.one("MatMul", {c.transposed(weights, 2, 0, 1), x});
    } else {
      x = c.one("MatMul", {c.transposed(x, rank, axis, last), weights});
      x = c.transposed(x, rank, axis, last);
    }
  }
  return {x};
}

/// The place of the maximum of a whole image, counted within it.
std::string place_of_the_largest(C c, const std::vector<std::int64_t>& axes) {
  const std::int64_t front = axes.front();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(front), 0);
  rows.push_back(-1);
  const std::string place = c.one("ArgMax", {c.one("Reshape", {c.x(), c.g.ints(rows)})},
                                  {{"axis", front}, {"keepdims", std::int64_t{1}}});
  return c.unsqueezed(place, {axes.begin() + 1, axes.end()});
}

Names adaptive_pool(C c, std::int64_t axes, bool largest) {
  const std::vector<std::int64_t> wanted = pooled_sizes(c, axes);
  const std::int64_t front = c.rank() - axes;
  std::vector<std::int64_t> over;
  for (std::int64_t d = 0; d < axes; ++d) {
    if (wanted[static_cast<std::size_t>(d)] == 1) over.push_back(front + d);
  }
  if (static_cast<std::ptrdiff_t>(over.size()) ==
      std::ssize(wanted) - std::ranges::count(wanted, kAsGiven)) {
    if (over.empty()) return {c.x()};
    const bool all = std::ssize(over) == axes;
    const std::string made =
        front == 2 && all
            ? c.one(largest ? "GlobalMaxPool" : "GlobalAveragePool", {c.x()})
            : c.reduced(largest ? "ReduceMax" : "ReduceMean", c.x(), over, true, c.rank());
    if (!largest || !all) return {made};
    return {made, place_of_the_largest(c, over)};
  }
  std::vector<std::int64_t> kernel;
  for (std::int64_t d = 0; d < axes; ++d) {
    const std::int64_t size = c.fixed_size("self", front + d),
                       out = wanted[static_cast<std::size_t>(d)];
    if (out == kAsGiven) {
      kernel.push_back(1);
      continue;
    }
    const bool divides = size >= 0 && size % out == 0;
    if (!divides && !largest) return average_by_products(c, wanted);
    if (size < 0)
      c.refuse(
          "an axis whose maxima are pooled to more than one place must have a fixed size; leave it "
          "out of dynamic_axes");
    if (!divides) c.refuse("the sizes whose maxima are pooled must be multiples of output_size");
    kernel.push_back(size / out);
  }
  const OnnxAttributes windows{{"kernel_shape", kernel}, {"strides", kernel}};
  return batched(c, axes, [&](const std::string& x) {
    if (!largest) return Names{c.one("AveragePool", {x}, windows)};
    // Places are rarely read: a node of their own is left out then.
    const Names made = c.g.ops("MaxPool", {x}, windows, 2);
    return Names{c.one("MaxPool", {x}, windows), places_of_maxima(c, x, made[1], axes)};
  });
}

/// Sizes along the last axes as the module gave them, or as factors.
Names resize(C c, std::string_view mode) {
  const char* const image = c.takes("input") ? "input" : "self";  // the former in scripts
  const std::int64_t axes = c.rank(image) - 2;
  OnnxAttributes attributes{{"mode", std::string(mode)}};
  if (mode == "nearest") {
    const bool exact = c.schema().name().find("exact") != std::string::npos;
    attributes["coordinate_transformation_mode"] = std::string(exact ? "half_pixel" : "asymmetric");
    attributes["nearest_mode"] = std::string(exact ? "round_prefer_ceil" : "floor");
  } else {
    const bool corners = c.has("align_corners") && c.b("align_corners");
    attributes["coordinate_transformation_mode"] =
        std::string(corners ? "align_corners" : "pytorch_half_pixel");
    const bool smooth = c.schema().name().ends_with("_aa");
    if (smooth) {  // what lies outside has no weight
      attributes["antialias"] = std::int64_t{1};
      attributes["exclude_outside"] = std::int64_t{1};
    }
    if (mode == "cubic") attributes["cubic_coeff_a"] = smooth ? -0.5 : -0.75;
  }
  std::vector<std::int64_t> last;
  for (std::int64_t d = 0; d < axes; ++d) last.push_back(d + 2);
  if (c.has("scale_factors") && is_constant(c.arg("scale_factors"))) {
    std::vector<float> scales = {1, 1};
    for (const OnnxValue& one : c.arg("scale_factors").elements())
      scales.push_back(static_cast<float>(one.to_double()));
    return {
        c.one("Resize", {c.x(image), "", c.g.tensor(at::tensor(scales, at::kFloat))}, attributes)};
  }
  std::vector<std::int64_t> sizes;
  bool is_fixed = true;
  for (std::int64_t d = 0; d < c.out_rank(); ++d) sizes.push_back(c.fixed_out(d));
  for (std::int64_t d = 2; d < c.out_rank(); ++d)
    is_fixed = is_fixed && sizes[static_cast<std::size_t>(d)] >= 0;
  std::string wanted =
      is_fixed ? c.g.ints({sizes.begin() + 2, sizes.end()}) : c.list("output_size");
  if (c.g.opset() >= 18) {
    attributes["axes"] = last;
  } else {
    wanted =
        sizes[0] >= 0 && sizes[1] >= 0 && is_fixed
            ? c.g.ints(sizes)
            : c.one("Concat", {c.sizes(c.x(image), 0, 2), wanted}, {{"axis", std::int64_t{0}}});
  }
  return {c.one("Resize", {c.x(image), "", "", wanted}, attributes)};
}

/// Runs an operator on images that wants one axis in front of channels, height and width where the
/// tensor may have none or several.
template <typename Say>
Names with_one_batch(C c, const Say& say) {
  const std::int64_t front = c.rank() - 3;
  if (front == 1) return {say(c.x())};
  if (front == 0) return {c.squeezed(say(c.unsqueezed(c.x(), {0})), {0})};
  const auto joined = [&](const Names& parts) {
    return c.one("Concat", parts, {{"axis", std::int64_t{0}}});
  };
  const std::string flat =
      c.one("Reshape", {c.x(), joined({c.g.ints({-1}), c.sizes(c.x(), front, c.rank())})});
  const std::string made = say(flat);
  return {c.one("Reshape", {made, joined({c.sizes(c.x(), 0, front), c.sizes(made, 1, 4)})})};
}

Names pixel_shuffle(C c) {
  return with_one_batch(c, [&](const std::string& x) {
    return c.one("DepthToSpace", {x},
                 {{"blocksize", c.i("upscale_factor")}, {"mode", std::string("CRD")}});
  });
}

/// Sizes that are not the same in all runs are divided in the model; one of them is inferred.
Names pixel_unshuffle(C c) {
  const std::int64_t f = c.i("downscale_factor");
  const std::int64_t first = c.rank() - 3;
  const std::int64_t channels = c.fixed_size("self", first), height = c.fixed_out(first + 1),
                     width = c.fixed_out(first + 2);
  return with_one_batch(c, [&](const std::string& x) {
    bool is_inferred = false;
    const auto size_of = [&](std::int64_t fixed, std::int64_t axis) {
      if (fixed >= 0) return c.g.ints({fixed});
      if (axis > 1 && !std::exchange(is_inferred, true)) return c.g.ints({-1});
      const std::string size = c.sizes(x, axis, axis + 1);
      return axis > 1 ? c.one("Div", {size, c.g.ints({f})}) : size;
    };
    const std::string depth = size_of(channels, 1), down = size_of(height, 2),
                      across = size_of(width, 3), factor = c.g.ints({f});
    const auto reshaped = [&](const std::string& tensor, const Names& sizes) {
      return c.one("Reshape", {tensor, c.one("Concat", sizes, {{"axis", std::int64_t{0}}})});
    };
    const std::string batch = c.g.ints({0});
    const std::string parts = reshaped(x, {batch, depth, down, factor, across, factor});
    const std::string order =
        c.one("Transpose", {parts}, {{"perm", std::vector<std::int64_t>{0, 1, 3, 5, 2, 4}}});
    const std::string deep =
        channels >= 0 ? c.g.ints({channels * f * f}) : c.one("Mul", {depth, c.g.ints({f * f})});
    return reshaped(order, {batch, deep, down, across});
  });
}

Names grid_sample(C c) {
  static const std::vector<std::string> modes20 = {"linear", "nearest", "cubic"},
                                        modes16 = {"bilinear", "nearest", "bicubic"},
                                        pads = {"zeros", "border", "reflection"};
  const auto mode = static_cast<std::size_t>(c.i("interpolation_mode"));
  if (c.rank("input") == 5 && c.g.opset() < 20)
    c.refuse("volumes need opset 20; set options.opset");
  return {c.one("GridSample", {c.x("input"), c.x("grid")},
                {{"mode", (c.g.opset() >= 20 ? modes20 : modes16)[mode]},
                 {"padding_mode", pads[static_cast<std::size_t>(c.i("padding_mode"))]},
                 {"align_corners", std::int64_t{c.b("align_corners")}}})};
}

Names nms(C c) {
  const std::string boxes = c.unsqueezed(c.x("dets"), {0}),
                    scores = c.unsqueezed(c.x("scores"), {0, 1});
  const std::string kept = c.one(
      "NonMaxSuppression", {boxes, scores, c.g.integer(std::numeric_limits<std::int64_t>::max()),
                            c.g.number(c.d("iou_threshold"), at::kFloat)});
  return {c.squeezed(c.sliced(kept, 1, 2, 3), {1})};
}

/// The first column of the regions is the image's number.
Names align_regions(C c) {
  const std::string rois = c.x("rois");
  const std::string number =
      c.g.cast(c.squeezed(c.sliced(rois, 1, 0, 1), {1}), c.type("rois"), at::kLong);
  const bool half = c.b("aligned");
  return {c.one("RoiAlign", {c.x("input"), c.sliced(rois, 1, 1, 5), number},
                {{"mode", std::string("avg")},
                 {"output_height", c.i("pooled_height")},
                 {"output_width", c.i("pooled_width")},
                 {"sampling_ratio", std::max<std::int64_t>(c.i("sampling_ratio"), 0)},
                 {"spatial_scale", c.d("spatial_scale")},
                 {"coordinate_transformation_mode",
                  std::string(half ? "half_pixel" : "output_half_pixel")}})};
}

constexpr Row kImages[] = {
    {"max_pool1d", 13, [](C c) { return max_pool(c, 1, false); }},
    {"max_pool2d", 13, [](C c) { return max_pool(c, 2, false); }},
    {"max_pool3d", 13, [](C c) { return max_pool(c, 3, false); }},
    {"max_pool1d_with_indices", 13, [](C c) { return max_pool(c, 1, true); }},
    {"max_pool2d_with_indices", 13, [](C c) { return max_pool(c, 2, true); }},
    {"max_pool3d_with_indices", 13, [](C c) { return max_pool(c, 3, true); }},
    {"max_unpool2d", 13, [](C c) { return max_unpool(c, 2); }},
    {"max_unpool3d", 13, [](C c) { return max_unpool(c, 3); }},
    {"avg_pool1d", 13, [](C c) { return average_pool(c, 1); }},
    {"avg_pool2d", 13, [](C c) { return average_pool(c, 2); }},
    {"avg_pool3d", 13, [](C c) { return average_pool(c, 3); }},
    {"adaptive_avg_pool1d", 13, [](C c) { return adaptive_pool(c, 1, false); }},
    {"adaptive_avg_pool2d", 13, [](C c) { return adaptive_pool(c, 2, false); }},
    {"adaptive_avg_pool3d", 13, [](C c) { return adaptive_pool(c, 3, false); }},
    {"adaptive_max_pool1d", 13, [](C c) { return adaptive_pool(c, 1, true); }},
    {"adaptive_max_pool2d", 13, [](C c) { return adaptive_pool(c, 2, true); }},
    {"adaptive_max_pool3d", 13, [](C c) { return adaptive_pool(c, 3, true); }},
    {"upsample_nearest1d upsample_nearest2d", 13, [](C c) { return resize(c, "nearest"); }},
    {"upsample_nearest3d _upsample_nearest_exact1d", 13, [](C c) { return resize(c, "nearest"); }},
    {"_upsample_nearest_exact2d", 13, [](C c) { return resize(c, "nearest"); }},
    {"_upsample_nearest_exact3d", 13, [](C c) { return resize(c, "nearest"); }},
    {"_upsample_bilinear2d_aa", 18, [](C c) { return resize(c, "linear"); }},
    {"_upsample_bicubic2d_aa", 18, [](C c) { return resize(c, "cubic"); }},
    {"upsample_linear1d upsample_bilinear2d", 13, [](C c) { return resize(c, "linear"); }},
    {"upsample_trilinear3d", 13, [](C c) { return resize(c, "linear"); }},
    {"upsample_bicubic2d", 13, [](C c) { return resize(c, "cubic"); }},
    {"pixel_shuffle", 13, pixel_shuffle},
    {"pixel_unshuffle", 13, pixel_unshuffle},
    {"grid_sampler grid_sampler_2d", 16, grid_sample},
    {"grid_sampler_3d", 20, grid_sample},
    {"torchvision::nms", 13, nms},
    {"torchvision::roi_align", 16, align_regions},
};

}  // namespace

std::span<const Row> image_rows() {
  return kImages;
}

}  // namespace mezzo::deploy::detail
