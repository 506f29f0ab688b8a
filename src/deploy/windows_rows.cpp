// Windows over axes, writes of slices, bags of embeddings, rounding to few steps.
#include <algorithm>
#include <limits>
#include <numeric>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

std::string numbers_up_to(C c, const std::string& count) {
  return c.one("Range", {c.g.integer(0), c.one("Squeeze", {count}), c.g.integer(1)});
}

/// Whole slices written at places of one axis; `source` has as many there as there are places.
Names written_slices(C c, std::int64_t axis, const std::string& places, const std::string& source) {
  std::vector<std::int64_t> around;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (d != axis) around.push_back(d);
  }
  const std::string all = c.one("Expand", {c.unsqueezed(places, around), c.one("Shape", {source})});
  return {c.one("ScatterElements", {c.x(), all, source}, {{"axis", axis}})};
}

Names slice_scatter(C c) {
  const std::int64_t axis = c.dim();
  const auto bound = [&](std::string_view name, std::int64_t otherwise) {
    return c.has(name) ? c.list(name) : c.g.ints({otherwise});
  };
  const std::string places =
      c.one("Slice", {numbers_up_to(c, c.sizes(c.x(), axis, axis + 1)), bound("start", 0),
                      bound("end", std::numeric_limits<std::int64_t>::max()), c.g.ints({0}),
                      c.g.ints({c.i("step", 1)})});
  return written_slices(c, axis, places, c.x("src", c.type()));
}

Names select_scatter(C c) {
  const std::int64_t axis = c.dim();
  return written_slices(c, axis, c.list("index"), c.unsqueezed(c.x("src", c.type()), {axis}));
}

/// The source's elements, in order, where the mask says so.
Names masked_scatter(C c) {
  const std::string x = c.x();
  const std::string mask = c.one("Expand", {c.x("mask", at::kBool), c.one("Shape", {x})});
  const std::string flat = c.one("Reshape", {mask, c.g.ints({-1})});
  const std::string count = c.one("CumSum", {c.g.cast(flat, at::kBool, at::kLong), c.g.integer(0)});
  const std::string place = c.one("Max", {c.one("Sub", {count, c.g.integer(1)}), c.g.integer(0)});
  const std::string values =
      c.one("Gather", {c.one("Reshape", {c.x("source"), c.g.ints({-1})}), place});
  return {c.one("Where", {mask, c.one("Reshape", {values, c.one("Shape", {x})}), x})};
}

Names put(C c) {
  const bool adds = c.b("accumulate");
  if (adds && c.g.opset() < 16) c.refuse("accumulate needs opset 16; set options.opset");
  const std::string minus = c.g.ints({-1});
  OnnxAttributes attributes{{"axis", std::int64_t{0}}};
  if (adds) attributes["reduction"] = std::string("add");
  const std::string flat =
      c.one("ScatterElements",
            {c.one("Reshape", {c.x(), minus}), c.one("Reshape", {c.x("index"), minus}),
             c.one("Reshape", {c.x("source"), minus})},
            attributes);
  return {c.one("Reshape", {flat, c.one("Shape", {c.x()})})};
}

/// [windows, length]: the places of windows along an axis.
std::string window_places(C c, const std::string& tensor, std::int64_t axis, std::int64_t length,
                          std::int64_t step, std::int64_t dilation) {
  const std::string size = c.sizes(tensor, axis, axis + 1);
  const std::string end =
      c.one("Sub", {c.one("Squeeze", {size}), c.g.integer((length - 1) * dilation)});
  const std::string begins = c.one("Range", {c.g.integer(0), end, c.g.integer(step)});
  std::vector<std::int64_t> within(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < within.size(); ++i)
    within[i] = static_cast<std::int64_t>(i) * dilation;
  return c.one("Add", {c.unsqueezed(begins, {1}), c.g.ints(within)});
}

Names unfold(C c) {
  const std::int64_t rank = c.rank(), axis = c.dim("dimension"), size = c.i("size");
  if (rank == 0) return {c.unsqueezed(c.x(), {0})};
  const std::string places = window_places(c, c.x(), axis, size, c.i("step"), 1);
  const std::string parts = c.one("Gather", {c.x(), places}, {{"axis", axis}});
  // The elements of a window stand behind everything.
  std::vector<std::int64_t> order;
  for (std::int64_t d = 0; d <= rank; ++d) {
    if (d != axis + 1) order.push_back(d);
  }
  order.push_back(axis + 1);
  return {c.one("Transpose", {parts}, {{"perm", order}})};
}

Names patches_of(C c) {
  const std::vector<std::int64_t> kernel = c.is("kernel_size"), pads = c.is("padding"),
                                  steps = c.is("stride"), dilations = c.is("dilation");
  const bool batched = c.rank() == 4;
  std::string x = batched ? c.x() : c.unsqueezed(c.x(), {0});
  const std::int64_t channels = c.fixed_size("self", batched ? 1 : 0);
  if (channels < 0) c.refuse("the number of channels follows from the model's inputs");
  x = c.one("Pad", {x, c.g.ints({0, 0, pads[0], pads[1], 0, 0, pads[0], pads[1]}), c.constant(0)});
  const std::string down = window_places(c, x, 2, kernel[0], steps[0], dilations[0]),
                    across = window_places(c, x, 3, kernel[1], steps[1], dilations[1]);
  // [N, C, rows, kernel, W], then [N, C, rows, kernel, columns, kernel].
  x = c.one("Gather", {x, down}, {{"axis", std::int64_t{2}}});
  x = c.one("Gather", {x, across}, {{"axis", std::int64_t{4}}});
  x = c.one("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 1, 3, 5, 2, 4}}});
  const std::string flat =
      c.one("Reshape", {x, c.g.ints({0, channels * kernel[0] * kernel[1], -1})});
  return {batched ? flat : c.squeezed(flat, {0})};
}

Names image_of_patches(C c) {
  std::vector<std::int64_t> pads = c.is("padding");
  pads.insert(pads.end(), pads.begin(), pads.end());
  const bool batched = c.rank() == 3;
  const std::string x = batched ? c.x() : c.unsqueezed(c.x(), {0});
  const std::string image =
      c.one("Col2Im", {x, c.list("output_size"), c.list("kernel_size")},
            {{"dilations", c.is("dilation")}, {"pads", pads}, {"strides", c.is("stride")}});
  return {batched ? image : c.squeezed(image, {0})};
}

/// Sums or means of rows, a bag each.
Names embedding_bag(C c) {
  const std::int64_t mode = c.i("mode");
  constexpr std::int64_t kMeanOfBag = 1, kLargest = 2;
  if (mode == kLargest) c.refuse("the largest of a bag is not said in ONNX; use sum or mean");
  if (c.takes("padding_idx") && c.has("padding_idx") && c.i("padding_idx") >= 0)
    c.refuse("padding_idx is not said in ONNX; let that row of the weight be zero and use sum");
  if (c.g.opset() < 16) c.refuse("it needs opset 16; set options.opset");
  std::string offsets = c.x("offsets", at::kLong);
  if (c.b("include_last_offset")) offsets = c.sliced(offsets, 0, 0, -1);
  const std::string indices = c.x("indices", at::kLong);
  std::string rows = c.one("Gather", {c.x("weight"), indices});
  if (c.has("per_sample_weights"))
    rows = c.one("Mul", {rows, c.unsqueezed(c.x("per_sample_weights"), {1})});
  const std::string place = numbers_up_to(c, c.one("Shape", {indices}));
  const std::string begun =
      c.one("LessOrEqual", {c.unsqueezed(offsets, {0}), c.unsqueezed(place, {1})});
  const std::string bag =
      c.one("Sub", {c.reduced("ReduceSum", c.g.cast(begun, at::kBool, at::kLong), {1}, false, 2),
                    c.g.integer(1)});
  const std::string bags = c.one("Shape", {offsets});
  const std::string zeros = c.one(
      "Expand",
      {c.constant(0), c.one("Concat", {bags, c.sizes(rows, 1, 2)}, {{"axis", std::int64_t{0}}})});
  const OnnxAttributes adds{{"reduction", std::string("add")}};
  const std::string column = c.unsqueezed(bag, {1});
  std::string sum = c.one("ScatterND", {zeros, column, rows}, adds);
  if (mode == kMeanOfBag) {
    const std::string none = c.one("Expand", {c.constant(0), bags}),
                      ones = c.one("Expand", {c.constant(1), c.one("Shape", {indices})});
    const std::string count =
        c.one("Max", {c.one("ScatterND", {none, column, ones}, adds), c.constant(1)});
    sum = c.one("Div", {sum, c.unsqueezed(count, {1})});
  }
  return {sum};
}

/// Rounded to steps between two bounds.
Names few_steps(C c, const std::string& scale, const std::string& zero) {
  const std::string x = c.x();
  const std::string steps =
      c.one("Clip", {c.one("Add", {c.one("Round", {c.one("Div", {x, scale})}), zero}),
                     c.constant(c.d("quant_min")), c.constant(c.d("quant_max"))});
  return {c.one("Mul", {c.one("Sub", {steps, zero}), scale})};
}

Names few_steps_by_channel(C c) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(c.rank()), 1);
  sizes[static_cast<std::size_t>(c.dim("axis"))] = -1;
  const auto spread = [&](std::string_view name) {
    return c.one("Reshape", {c.x(name, c.out_type()), c.g.ints(sizes)});
  };
  return few_steps(c, spread("scale"), spread("zero_point"));
}

/// Parts along a dimension whose norm is above a bound are scaled to it.
Names bounded_norms(C c) {
  std::vector<std::int64_t> others;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (d != c.dim()) others.push_back(d);
  }
  const double p = c.d("p");
  if (p != 1 && p != 2) c.refuse("only the norms 1 and 2 are said in ONNX");
  const std::string size =
      c.reduced(p == 1 ? "ReduceL1" : "ReduceL2", c.x(), others, true, c.rank());
  const std::string most = c.constant(c.d("maxnorm"));
  const std::string factor = c.one("Div", {most, c.one("Add", {size, c.constant(1e-7)})});
  return {c.one("Mul",
                {c.x(), c.one("Where", {c.one("Greater", {size, most}), factor, c.constant(1)})})};
}

Names weight_norm(C c) {
  std::vector<std::int64_t> others;
  for (std::int64_t d = 0; d < c.rank("v"); ++d) {
    if (d != c.dim("dim", "v")) others.push_back(d);
  }
  const std::string size = c.reduced("ReduceL2", c.x("v"), others, true, c.rank("v"));
  return {c.one("Mul", {c.x("v"), c.one("Div", {c.x("g"), size})})};
}

Names affine_grid(C c) {
  return {c.one("AffineGrid", {c.x("theta"), c.list("size")},
                {{"align_corners", std::int64_t{c.b("align_corners")}}})};
}

constexpr Row kWindows[] = {
    {"slice_scatter", 13, slice_scatter},
    {"select_scatter", 13, select_scatter},
    {"masked_scatter", 13, masked_scatter},
    {"put", 13, put},
    {"unfold", 13, unfold},
    {"im2col", 13, patches_of},
    {"col2im", 18, image_of_patches},
    {"embedding_bag _embedding_bag _embedding_bag_forward_only", 16, embedding_bag},
    {"fake_quantize_per_tensor_affine", 13,
     [](C c) { return few_steps(c, c.x("scale", c.out_type()), c.x("zero_point", c.out_type())); }},
    {"fake_quantize_per_channel_affine", 13, few_steps_by_channel},
    {"renorm", 13, bounded_norms},
    {"_weight_norm _weight_norm_interface", 13, weight_norm},
    {"affine_grid_generator", 20, affine_grid},
};

}  // namespace

std::span<const Row> window_rows() {
  return kWindows;
}

}  // namespace mezzo::deploy::detail
