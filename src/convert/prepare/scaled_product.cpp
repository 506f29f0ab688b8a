#include "convert/prepare/scaled_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

using Dims = std::vector<std::int64_t>;

Dims dims_of(const Graph& graph, ValueId id) {
  if (const Message* tensor = graph.constant(id))
    return read_tensor(graph.document(), *tensor).dims;
  return {static_cast<std::int64_t>(floats_of(graph, id).size())};
}

std::int64_t product_from(const Dims& dims, std::size_t first) {
  return std::accumulate(dims.begin() + static_cast<std::ptrdiff_t>(first), dims.end(),
                         std::int64_t{1}, std::multiplies<>());
}

double factor_attribute(const Graph& graph, const Node& node, std::string_view name) {
  const Message* found = graph.attribute(node, name);
  if (found == nullptr) return 1;
  return std::bit_cast<float>(static_cast<std::uint32_t>(found->number(field::attribute::kFloat)));
}

bool takes_attributes_from_function(const Node& node) {
  return std::ranges::any_of(node.message->fields(), [](Field& field) {
    return field.number == field::node::kAttribute &&
           !field.open().text(field::attribute::kReference).empty();
  });
}

std::optional<WeightLayout> layout_of(const Graph& graph, const Node& node, const Dims& dims) {
  if (std::ranges::any_of(dims, [](std::int64_t dim) { return dim <= 0; })) return std::nullopt;
  if (node.op == "Gemm" || node.op == "MatMul") {
    if (dims.size() != 2) return std::nullopt;
    const bool is_transposed = graph.integer(node, "transB", 0) != 0;
    if (is_transposed) return WeightLayout{1, dims[0], dims[1], 1};
    return WeightLayout{dims[0], dims[1], 1, dims[0]};
  }
  if (dims.size() < 3) return std::nullopt;
  if (node.op == "Conv") return WeightLayout{1, dims[0], product_from(dims, 1), 1};
  const std::int64_t groups = graph.integer(node, "group", 1);
  if (groups < 1 || dims[0] % groups != 0) return std::nullopt;
  return WeightLayout{dims[0], dims[1], product_from(dims, 2), dims[0] / groups};
}

// A normalization counts channels along the second dimension, which is a product's last one only
// where there are two.
bool is_matrix(const Graph& graph, const Node& product) {
  const auto has_two = [&](ValueId id) {
    const Value& value = graph.value(id);
    return value.has_dims && value.dims.size() == 2;
  };
  const NodeId maker = graph.value(product.inputs[0]).producer;
  const bool is_flat =
      maker != kNone && graph.node(maker).domain.empty() && graph.node(maker).op == "Flatten";
  return is_flat || has_two(product.inputs[0]) || has_two(product.outputs[0]);
}

ValueId bias_of(const Node& node) {
  return node.inputs.size() > 2 ? node.inputs[2] : kNone;
}

// One value for all channels, or one for each.
bool is_per_channel(const Dims& dims, std::uint64_t count, std::int64_t channels) {
  if (count == 1) return true;
  return count == static_cast<std::uint64_t>(channels) && dims.back() == channels;
}

}  // namespace

Affine Affine::then(const Affine& next) const {
  Affine both = *this;
  for (std::size_t c = 0; c < channels(); ++c) {
    both.factor[c] *= next.factor[c];
    both.shift[c] = both.shift[c] * next.factor[c] + next.shift[c];
  }
  return both;
}

std::vector<float> floats_of(const Graph& graph, ValueId id) {
  const Message* message = graph.constant(id);
  if (message == nullptr) return *listed_floats(graph, graph.node(graph.value(id).producer));
  const Tensor tensor = read_tensor(graph.document(), *message);
  std::vector<float> values;
  values.reserve(tensor.count);
  for_each_chunk(tensor, [&](std::span<const float> chunk) {
    values.insert(values.end(), chunk.begin(), chunk.end());
  });
  graph.document().release(tensor.raw);
  return values;
}

std::optional<Product> product_of(const Graph& graph, const Constants& constants, const Node& node,
                                  std::string* why) {
  const auto refused = [&](std::string_view text) -> std::optional<Product> {
    *why = concat({graph.describe(node), " ", text});
    return std::nullopt;
  };
  const bool is_gemm = node.op == "Gemm";
  const bool is_matmul = node.op == "MatMul";
  if (!node.domain.empty() ||
      (node.op != "Conv" && node.op != "ConvTranspose" && !is_gemm && !is_matmul))
    return refused("makes what it reads, which is no Conv, ConvTranspose, Gemm or MatMul");
  if ((is_gemm || is_matmul) && node.opset < 7) return refused("is of an opset below 7");
  if (takes_attributes_from_function(node)) return refused("takes an attribute from its function");
  if (node.inputs.size() < 2 || node.inputs[1] == kNone || !constants.is_constant(node.inputs[1]))
    return refused("has weights that are no float32 constant");
  if (is_matmul && (node.inputs[0] == kNone || !is_matrix(graph, node)))
    return refused("reads what is not known to have two dimensions");
  const ValueId bias = bias_of(node);
  if (bias != kNone && !constants.is_constant(bias))
    return refused("has a bias that is no float32 constant");
  const auto layout = layout_of(graph, node, dims_of(graph, node.inputs[1]));
  if (!layout) return refused("has weights of an impossible shape");
  if (bias != kNone &&
      !is_per_channel(dims_of(graph, bias), constants.count(bias), layout->channels()))
    return refused("has a bias with more than one value per channel");
  return Product{*layout, is_gemm ? factor_attribute(graph, node, "beta") : 1};
}

std::optional<Scaled> scaled(const Graph& graph, const Node& node, const Product& product,
                             const Affine& affine) {
  Scaled result{floats_of(graph, node.inputs[1]), {}};
  bool is_finite = true;
  const auto narrowed = [&](double value) {
    const auto narrow = static_cast<float>(value);
    is_finite = is_finite && std::isfinite(narrow);
    return narrow;
  };
  const auto& [outer, inner, rest, per_group] = product.layout;
  float* at = result.weights.data();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const double factor = affine.factor[static_cast<std::size_t>(o / per_group * inner + i)];
      for (std::int64_t r = 0; r < rest; ++r, ++at) *at = narrowed(factor * *at);
    }
  }
  const ValueId bias = bias_of(node);
  const std::vector<float> old = bias == kNone ? std::vector<float>{0} : floats_of(graph, bias);
  for (std::size_t c = 0; c < affine.channels(); ++c) {
    const double before = product.bias_factor * old[old.size() == 1 ? 0 : c];
    result.bias.push_back(narrowed(affine.factor[c] * before + affine.shift[c]));
  }
  if (!is_finite) return std::nullopt;
  return result;
}

}  // namespace mezzo::convert
