#include "convert/graph/shape_rules.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "convert/graph/shape_place.h"

namespace mezzo::convert {
namespace {

// Gather adds ranks: in a strange file they could double from node to node.
constexpr std::size_t kMostDims = 64;

Shape broadcast_all(const Place& p) {
  Dims all;
  for (std::size_t i = 0; i < p.inputs(); ++i) {
    if (!p.in(i)) return std::nullopt;
    all = broadcast(all, *p.in(i));
  }
  return all;
}

Shape concatenation(const Place& p) {
  if (!p.in(0)) return std::nullopt;
  Dims dims = *p.in(0);
  std::int64_t axis = p.integer("axis", 1);
  if (!wrap(axis, dims.size())) return std::nullopt;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < p.inputs(); ++i) {
    if (!p.in(i) || p.in(i)->size() != dims.size()) return std::nullopt;
    const std::int64_t size = (*p.in(i))[static_cast<std::size_t>(axis)];
    sum = size == kUnknownDim || sum == kUnknownDim ? kUnknownDim : sum + size;
  }
  at(dims, axis) = sum;
  return dims;
}

Shape split(const Place& p) {
  const Shape sizes = p.listed("split", 1);
  if (!p.in(0) || !sizes) return std::nullopt;
  Dims dims = *p.in(0);
  std::int64_t axis = p.integer("axis", 0);
  if (!wrap(axis, dims.size())) return std::nullopt;
  if (p.output < sizes->size()) {
    at(dims, axis) = std::max<std::int64_t>((*sizes)[p.output], 0);
  } else {
    at(dims, axis) = kUnknownDim;  // all parts are of one size, but how many there are is not asked
  }
  return dims;
}

Shape slice(const Place& p) {
  const Shape starts = p.listed("starts", 1);
  const Shape ends = p.listed("ends", 2);
  Shape axes = p.listed("axes", 3);
  const Shape steps = p.has(4) ? p.list(4) : Dims();
  if (!p.in(0) || !starts || !ends || !axes || !steps) return std::nullopt;
  Dims dims = *p.in(0);
  for (std::size_t i = 0; i < std::min(starts->size(), ends->size()); ++i) {
    auto axis = i < axes->size() ? (*axes)[i] : static_cast<std::int64_t>(i);
    if (!wrap(axis, dims.size())) return std::nullopt;
    const std::int64_t step = i < steps->size() ? (*steps)[i] : 1;
    change(at(dims, axis), [&](std::int64_t size) {
      const auto place = [&](std::int64_t index) {
        return std::clamp<std::int64_t>(index < 0 ? std::max(index, -size) + size : index, 0, size);
      };
      const std::int64_t length = std::abs(place((*ends)[i]) - place((*starts)[i]));
      const std::int64_t stride = std::max<std::int64_t>(std::abs(step), 1);
      return (length + stride - 1) / stride;
    });
  }
  return dims;
}

Shape gather(const Place& p) {
  if (!p.in(0) || !p.in(1)) return std::nullopt;
  Dims dims = *p.in(0);
  std::int64_t axis = p.integer("axis", 0);
  if (!wrap(axis, dims.size())) return std::nullopt;
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, p.in(1)->begin(), p.in(1)->end());
  return dims;
}

Shape like_second(const Place& p) {
  return p.in(1);
}

Shape expand(const Place& p) {
  const Shape wanted = p.list(1);
  if (!p.in(0) || !wanted) return std::nullopt;
  return broadcast(*p.in(0), *wanted);
}

Shape tile(const Place& p) {
  const Shape repeats = p.list(1);
  if (!p.in(0) || !repeats || repeats->size() != p.in(0)->size()) return std::nullopt;
  Dims dims = *p.in(0);
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = product(dims[i], (*repeats)[i]);
  return dims;
}

Shape pad(const Place& p) {
  const Shape pads = p.listed(p.is_given("paddings") ? "paddings" : "pads", 1);
  const Shape axes = p.has(3) ? p.list(3) : Dims();
  if (!p.in(0) || !pads || !axes) return std::nullopt;
  Dims dims = *p.in(0);
  const std::size_t count = pads->size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    auto axis = i < axes->size() ? (*axes)[i] : static_cast<std::int64_t>(i);
    if (!wrap(axis, dims.size())) return std::nullopt;
    change(at(dims, axis),
           [&](std::int64_t size) { return size + (*pads)[i] + (*pads)[i + count]; });
  }
  return dims;
}

Shape resize(const Place& p) {
  if (!p.in(0) || p.is_given("axes")) return std::nullopt;
  Dims dims = *p.in(0);
  Shape sizes = p.has(3) ? p.list(3) : std::nullopt;
  if (sizes && sizes->size() == dims.size()) return sizes;
  const auto scales = p.numbers(p.opset() < 11 || p.inputs() == 2 ? 1 : 2);
  if (!scales || scales->size() != dims.size()) return std::nullopt;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    change(dims[i], [&](std::int64_t size) {
      const double scaled = std::floor(static_cast<double>(size) * (*scales)[i]);
      return std::isfinite(scaled) ? static_cast<std::int64_t>(std::clamp(scaled, 0.0, 1e9)) : size;
    });
  }
  return dims;
}

Shape reduced(const Place& p, Shape axes) {
  if (!p.in(0) || !axes) return std::nullopt;
  Dims dims = *p.in(0);
  if (axes->empty()) {
    if (p.integer("noop_with_empty_axes", 0) != 0) return dims;
    axes->resize(dims.size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  for (std::int64_t& axis : *axes) {
    if (!wrap(axis, dims.size())) return std::nullopt;
    at(dims, axis) = 1;
  }
  if (p.integer("keepdims", 1) != 0) return dims;
  std::ranges::sort(*axes, std::greater<>());
  axes->erase(std::unique(axes->begin(), axes->end()), axes->end());
  for (const std::int64_t axis : *axes) dims.erase(dims.begin() + axis);
  return dims;
}

Shape reduction(const Place& p) {
  return reduced(p, p.listed("axes", 1));
}

// One axis, the first if none is named.
Shape position(const Place& p) {
  return reduced(p, Dims{p.integer("axis", 0)});
}

Shape top_k(const Place& p) {
  const Shape k = p.is_given("k") ? Shape(Dims{p.integer("k", 1)}) : p.list(1);
  if (!p.in(0)) return std::nullopt;
  Dims dims = *p.in(0);
  std::int64_t axis = p.integer("axis", -1);
  if (!wrap(axis, dims.size())) return std::nullopt;
  at(dims, axis) = k && !k->empty() ? std::max<std::int64_t>(k->front(), 0) : kUnknownDim;
  return dims;
}

// Blocks of pixels to channels, or back.
Shape block_shape(const Place& p, bool to_depth) {
  Shape dims = p.in(0);
  const std::int64_t block = p.integer("blocksize", 1);
  if (!dims || dims->size() != 4 || block < 1) return std::nullopt;
  const auto scale = [&](std::int64_t& dim, std::int64_t by, bool grows) {
    if (grows) dim = product(dim, by);
    if (!grows) change(dim, [&](std::int64_t size) { return size / by; });
  };
  scale((*dims)[1], block * block, to_depth);
  for (const std::size_t i : {2U, 3U}) scale((*dims)[i], block, !to_depth);
  return dims;
}

Shape depth_to_space(const Place& p) {
  return block_shape(p, false);
}

Shape space_to_depth(const Place& p) {
  return block_shape(p, true);
}

Shape shape_of(const Place& p) {
  if (p.is_given("start") || p.is_given("end")) return std::nullopt;
  return p.in(0) ? Shape(Dims{static_cast<std::int64_t>(p.in(0)->size())}) : std::nullopt;
}

Shape from_list(const Place& p) {
  return p.list(0);
}

// Their shapes follow from values, or from more than is looked at here.
constexpr std::string_view kOpen[] = {"AffineGrid",
                                      "Attention",
                                      "BlackmanWindow",
                                      "CenterCropPad",
                                      "Col2Im",
                                      "Compress",
                                      "DFT",
                                      "DeformConv",
                                      "Det",
                                      "Einsum",
                                      "GatherND",
                                      "GridSample",
                                      "HammingWindow",
                                      "HannWindow",
                                      "ImageDecoder",
                                      "MaxRoiPool",
                                      "MaxUnpool",
                                      "MelWeightMatrix",
                                      "Multinomial",
                                      "NegativeLogLikelihoodLoss",
                                      "NonMaxSuppression",
                                      "NonZero",
                                      "OneHot",
                                      "QLinearConv",
                                      "QLinearMatMul",
                                      "RandomNormal",
                                      "RandomUniform",
                                      "Range",
                                      "RoiAlign",
                                      "STFT",
                                      "SequenceLength",
                                      "Size",
                                      "SoftmaxCrossEntropyLoss",
                                      "StringNormalizer",
                                      "TfIdfVectorizer",
                                      "Unique"};

struct ShapeRule {
  std::string_view op;
  Shape (*shape)(const Place&);
};

// Sorted by name. An operator that is neither here nor open gives its first output the shape of its
// first input.
constexpr ShapeRule kShapeRules[] = {
    {"Add", broadcast_all},
    {"And", broadcast_all},
    {"ArgMax", position},
    {"ArgMin", position},
    {"AveragePool", pooling_shape},
    {"Concat", concatenation},
    {"ConstantOfShape", from_list},
    {"Conv", convolution_shape},
    {"ConvInteger", convolution_shape},
    {"ConvTranspose", transposed_convolution_shape},
    {"DepthToSpace", depth_to_space},
    {"Div", broadcast_all},
    {"Equal", broadcast_all},
    {"Expand", expand},
    {"Flatten", flatten_shape},
    {"GRU", recurrent_shape},
    {"Gather", gather},
    {"GatherElements", like_second},
    {"Gemm", gemm_shape},
    {"GlobalAveragePool", global_pooling_shape},
    {"GlobalMaxPool", global_pooling_shape},
    {"Greater", broadcast_all},
    {"GreaterOrEqual", broadcast_all},
    {"LSTM", recurrent_shape},
    {"Less", broadcast_all},
    {"LessOrEqual", broadcast_all},
    {"LpPool", pooling_shape},
    {"MatMul", matrix_product_shape},
    {"MatMulInteger", matrix_product_shape},
    {"Max", broadcast_all},
    {"MaxPool", pooling_shape},
    {"Mean", broadcast_all},
    {"Min", broadcast_all},
    {"Mod", broadcast_all},
    {"Mul", broadcast_all},
    {"Or", broadcast_all},
    {"Pad", pad},
    {"Pow", broadcast_all},
    {"RNN", recurrent_shape},
    {"ReduceL1", reduction},
    {"ReduceL2", reduction},
    {"ReduceLogSum", reduction},
    {"ReduceLogSumExp", reduction},
    {"ReduceMax", reduction},
    {"ReduceMean", reduction},
    {"ReduceMin", reduction},
    {"ReduceProd", reduction},
    {"ReduceSum", reduction},
    {"ReduceSumSquare", reduction},
    {"Reshape", reshape_shape},
    {"Resize", resize},
    {"Shape", shape_of},
    {"Slice", slice},
    {"SpaceToDepth", space_to_depth},
    {"Split", split},
    {"Squeeze", squeeze_shape},
    {"Sub", broadcast_all},
    {"Sum", broadcast_all},
    {"Tile", tile},
    {"TopK", top_k},
    {"Transpose", transpose_shape},
    {"Unsqueeze", unsqueeze_shape},
    {"Upsample", resize},
    {"Where", broadcast_all},
    {"Xor", broadcast_all},
};
static_assert(std::ranges::is_sorted(kShapeRules, {}, &ShapeRule::op),
              "bisected: keep sorted by op");

}  // namespace

Dims broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() < b.size() ? b : a;
  const Dims& shorter = a.size() < b.size() ? a : b;
  Dims dims = longer;
  const std::size_t extra = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& dim = dims[i + extra];
    // A size beside an unknown one is the result's, unless it is one.
    if (dim == 1 || (dim == kUnknownDim && shorter[i] != 1)) dim = shorter[i];
  }
  return dims;
}

std::optional<Dims> output_shape(const Graph& graph, const Node& node, std::size_t output,
                                 const KnownShapes& known) {
  if (!node.domain.empty() || std::ranges::find(kOpen, node.op) != std::end(kOpen))
    return std::nullopt;
  const Place place(graph, node, output, known);
  const auto* rule = std::ranges::lower_bound(kShapeRules, node.op, {}, &ShapeRule::op);
  Shape dims;
  if (rule != std::end(kShapeRules) && rule->op == node.op) {
    dims = rule->shape(place);
  } else if (output == 0 && graph.value(node.outputs[0]).type.is_plain_tensor()) {
    dims = place.in(0);
  }
  if (!dims || dims->size() > kMostDims) return std::nullopt;
  for (std::int64_t& dim : *dims) dim = std::clamp(dim, kUnknownDim, kLargestDim);
  return dims;
}

}  // namespace mezzo::convert
