// Images made larger and smaller.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

Dims image_dims(Call& call, const Operand& x) {
  if (call.rank(x) != 4) call.refuse("its input is no batch of images; expected four dimensions");
  return *x.dims;
}

Operands upsampling(Call& call) {
  const Operand& x = call.input(0);
  Dims dims = image_dims(call, x);
  const std::int64_t scale = call.integer("scale", 1);
  if (call.has("num_args") && call.integer("num_args", 1) > 1 &&
      call.text("sample_type", "nearest") == "nearest")
    call.refuse("several inputs; expected one");
  for (const std::size_t i : {2U, 3U})
    if (dims[i] >= 0) dims[i] *= scale;
  if (call.text("sample_type", "nearest") != "nearest") {  // with weights, as a deconvolution
    const std::int64_t pad = (scale - 1 + 1) / 2;
    const std::int64_t kernel = 2 * scale - scale % 2;
    const Attributes attributes{{"kernel_shape", Dims{kernel, kernel}},
                                {"strides", Dims{scale, scale}},
                                {"pads", Dims{pad, pad, pad, pad}},
                                {"group", call.integer("num_filter", dims[1])}};
    return {call.add("ConvTranspose", {x, call.input(1)}, attributes, {x.element, dims})};
  }
  const auto factor = static_cast<float>(scale);
  return {call.add("Resize", {x, {}, call.writer.floats({4}, {1, 1, factor, factor})},
                   {{"mode", std::string("nearest")},
                    {"coordinate_transformation_mode", std::string("asymmetric")},
                    {"nearest_mode", std::string("floor")}},
                   {x.element, dims})};
}

Operands bilinear_resize(Call& call) {
  const Operand& x = call.input(0);
  Dims dims = image_dims(call, x);
  const std::string mode = call.text("mode", "size");
  Operands sizes{call.size(x, 0), call.size(x, 1)};
  for (const std::int64_t axis : {2, 3}) {
    const auto i = static_cast<std::size_t>(axis);
    const char* scale_key = axis == 2 ? "scale_height" : "scale_width";
    if (mode == "like" || (mode == "size" && call.input_count() > 1)) {
      sizes.push_back(call.size(call.input(1), axis));
      dims[i] = call.input(1).dims ? call.input(1).dims->at(i) : kUnknownSize;
    } else if (mode == "size" && call.has(scale_key)) {
      if (dims[i] < 0)
        call.refuse(
            "scales of sizes that are not known; give the shapes of the data (--input "
            "NAME=SHAPE)");
      dims[i] = static_cast<std::int64_t>(static_cast<double>(dims[i]) * call.number(scale_key, 1));
      sizes.push_back(call.writer.integers({dims[i]}));
    } else if (mode == "size") {
      dims[i] = call.integer(axis == 2 ? "height" : "width", 1);
      sizes.push_back(call.writer.integers({dims[i]}));
    } else {
      call.refuse("mode is " + mode + "; expected size or like");
    }
  }
  const bool aligns = call.flag("align_corners", true);
  return {call.add("Resize", {x, {}, {}, call.concat(sizes, 0)},
                   {{"mode", std::string("linear")},
                    {"coordinate_transformation_mode",
                     std::string(aligns ? "align_corners" : "pytorch_half_pixel")}},
                   {x.element, dims})};
}

/// The weights that average an axis into `count` places, [size, count]: place i takes what lies
/// from floor(i * size / count) to ceil((i + 1) * size / count).
Operand averaging_weights(Call& call, const Operand& x, std::int64_t axis, std::int64_t count) {
  const std::int64_t known = x.dims->at(static_cast<std::size_t>(axis));
  if (known >= 0) {
    std::vector<float> weights(static_cast<std::size_t>(known * count), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = i * known / count, end = ((i + 1) * known + count - 1) / count;
      for (std::int64_t place = begin; place < end; ++place)
        weights[static_cast<std::size_t>(place * count + i)] =
            static_cast<float>(1.0 / static_cast<double>(end - begin));
    }
    return call.writer.floats({known, count}, weights);
  }
  Dims numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Operand size = call.size(x, axis), total = call.writer.integers({count});
  const Operand begins = call.broadcast("Mul", call.writer.integers(numbers), size);
  const Operand begin = call.broadcast("Div", begins, total);
  const Operand reach = call.broadcast("Add", begins, size);
  const Operand end =
      call.broadcast("Div", call.broadcast("Add", reach, call.writer.integers({count - 1})), total);
  const Operand places =
      call.add("Range", {call.writer.integer(0), call.squeeze(size, {0}), call.writer.integer(1)},
               {}, {Element::kInt64, Dims{kUnknownSize}});
  const Operand from = call.unsqueeze(places, {1});
  const Form truth{Element::kBool, Dims{kUnknownSize, count}};
  const Operand begun = call.add("GreaterOrEqual", {from, begin}, {}, truth);
  const Operand open = call.add("Less", {from, end}, {}, truth);
  const Operand inside = call.add("And", {begun, open}, {}, truth);
  const Operand length = call.broadcast("Sub", end, begin);
  return call.broadcast("Div", call.cast(inside, x.element), call.cast(length, x.element));
}

/// Places of different lengths, and sizes that only a run shows, as products with weights.
Operand averaged_by_products(Call& call, const Operand& x, const Dims& wanted, Dims dims) {
  const Operand across = averaging_weights(call, x, 3, wanted[1]);
  dims[3] = wanted[1];
  const Operand narrow = call.add("MatMul", {x, across}, {}, {x.element, dims});
  const Operand down = call.transpose(averaging_weights(call, x, 2, wanted[0]), {1, 0});
  dims[2] = wanted[0];
  return call.add("MatMul", {down, narrow}, {}, {x.element, dims});
}

Operands adaptive_pooling(Call& call) {
  const Operand& x = call.input(0);
  Dims dims = image_dims(call, x);
  Dims wanted = call.list("output_size", {1, 1});
  if (wanted.empty()) wanted = {1, 1};
  if (wanted.size() == 1) wanted.push_back(wanted.front());
  constexpr std::int64_t kMost = 1 << 16;
  for (const std::int64_t count : wanted) {
    if (count < 1 || count > kMost || wanted.size() != 2)
      call.refuse("output_size cannot be; expected one or two sizes above 0");
  }
  if (wanted == Dims{1, 1}) {
    dims[2] = dims[3] = 1;
    return {call.add("GlobalAveragePool", {x}, {}, {x.element, dims})};
  }
  Dims kernel;
  for (const std::size_t i : {0U, 1U}) {
    if (dims[i + 2] <= 0 || dims[i + 2] % wanted[i] != 0)
      return {averaged_by_products(call, x, wanted, dims)};
    kernel.push_back(dims[i + 2] / wanted[i]);
  }
  dims[2] = wanted[0], dims[3] = wanted[1];
  return {call.add("AveragePool", {x}, {{"kernel_shape", kernel}, {"strides", kernel}},
                   {x.element, dims})};
}

std::int64_t block_of(Call& call) {
  const std::int64_t block = call.integer("block_size", 1);
  constexpr std::int64_t kMostBlock = 1024;
  if (block < 1 || block > kMostBlock) call.refuse("block_size cannot be; expected 1 to 1024");
  return block;
}

Operands depth_to_space(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t block = block_of(call);
  Dims dims = image_dims(call, x);
  if (dims[1] > 0) dims[1] /= block * block;
  for (const std::size_t i : {2U, 3U})
    if (dims[i] > 0) dims[i] *= block;
  return {call.add("DepthToSpace", {x}, {{"blocksize", block}}, {x.element, dims})};
}

Operands space_to_depth(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t block = block_of(call);
  Dims dims = image_dims(call, x);
  if (dims[1] > 0) dims[1] *= block * block;
  for (const std::size_t i : {2U, 3U})
    if (dims[i] > 0) dims[i] /= block;
  return {call.add("SpaceToDepth", {x}, {{"blocksize", block}}, {x.element, dims})};
}

Operands roi_pooling(Call& call) {
  const Operand& x = call.input(0);
  const Dims size = call.list("pooled_size");
  const Dims dims{kUnknownSize, x.dims ? x.dims->at(1) : kUnknownSize,
                  size.empty() ? kUnknownSize : size.front(),
                  size.empty() ? kUnknownSize : size.back()};
  return {call.add("MaxRoiPool", {x, call.input(1)},
                   {{"pooled_shape", size},
                    {"spatial_scale", static_cast<float>(call.number("spatial_scale", 1))}},
                   {x.element, dims})};
}

constexpr TranslationRow kImageRows[] = {
    {"UpSampling", upsampling, Reads::kAll, true},
    {"_contrib_BilinearResize2D", bilinear_resize, Reads::kAll, true},
    {"_contrib_AdaptiveAvgPooling2D", adaptive_pooling, Reads::kAll, true},
    {"depth_to_space", depth_to_space},
    {"space_to_depth", space_to_depth},
    {"ROIPooling", roi_pooling},
};

}  // namespace

std::span<const TranslationRow> image_rows() {
  return kImageRows;
}

}  // namespace mezzo::convert::mxnet
