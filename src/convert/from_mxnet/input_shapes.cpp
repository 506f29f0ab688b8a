#include "convert/from_mxnet/input_shapes.h"

#include <algorithm>
#include <set>

#include "convert/from_mxnet/rows.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

const std::vector<std::int64_t>* shape_of_parameter(const Source& source, const Node& node,
                                                    std::size_t input) {
  if (input >= node.inputs.size()) return nullptr;
  const Node& from = source.symbol.nodes()[node.inputs[input].node];
  const NDArrays* holder = from.is_variable() ? source.holder(from.name) : nullptr;
  return holder == nullptr ? nullptr : &holder->shape(from.name);
}

// The sizes of data that a reader's parameters ask for.
std::optional<Dims> dims_wanted_by(const Source& source, const Node& node, std::size_t input,
                                   OnnxWriter& writer) {
  const Call call(source, node, {}, writer);
  const auto* weight = shape_of_parameter(source, node, 1);
  const bool is_convolution = node.op == "Convolution" || node.op == "Convolution_v1";
  if ((is_convolution || node.op == "Deconvolution") && input == 0) {
    Dims dims(call.list("kernel").size() + 2, kUnknownSize);
    const bool is_last = call.text("layout", "").ends_with('C');
    if (weight != nullptr && weight->size() == dims.size() && is_last)
      dims.back() = weight->back() * call.integer("num_group", 1);
    else if (weight != nullptr && weight->size() == dims.size())
      dims[1] = is_convolution ? (*weight)[1] * call.integer("num_group", 1) : (*weight)[0];
    return dims;
  }
  if (node.op == "FullyConnected" && input == 0 && call.flag("flatten", true)) {
    if (weight == nullptr || weight->size() != 2) return std::nullopt;
    return Dims{kUnknownSize, (*weight)[1]};
  }
  if ((node.op == "Pooling" || node.op == "Pooling_v1") && !call.list("kernel").empty())
    return Dims(call.list("kernel").size() + 2, kUnknownSize);
  // Indices: a batch of sequences, which is what most networks read that have words.
  if (node.op == "Embedding" && input == 0) return Dims(2, kUnknownSize);
  if (node.op == "RNN" && input != 1) {
    Dims dims(3, kUnknownSize);
    if (input > 1) {
      dims[0] = call.integer("num_layers", 1) * (call.flag("bidirectional") ? 2 : 1);
      dims[2] = call.integer("state_size", kUnknownSize);
    }
    return dims;
  }
  return std::nullopt;
}

// Looks on through operators that keep shapes.
std::optional<Dims> dims_wanted(const Source& source, std::uint32_t variable) {
  OnnxWriter unused;
  const std::vector<Node>& nodes = source.symbol.nodes();
  std::set<std::pair<std::uint32_t, std::uint32_t>> alike{{variable, 0}};
  for (std::uint32_t i = variable + 1; i < nodes.size(); ++i) {
    for (std::size_t input = 0; input < nodes[i].inputs.size(); ++input) {
      const Entry& entry = nodes[i].inputs[input];
      if (!alike.contains({entry.node, entry.output})) continue;
      if (auto dims = dims_wanted_by(source, nodes[i], input, unused)) return dims;
      const TranslationRow* row = find_translation(nodes[i].op);
      if (input == 0 && row != nullptr && row->keeps_shape) alike.insert({i, 0});
    }
  }
  return std::nullopt;
}

std::vector<std::string> names_of_sizes(const std::string& input, std::size_t rank) {
  if (rank == 4) return {"batch", "channels", "height", "width"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < rank; ++i) names.push_back(input + "_size" + std::to_string(i));
  if (rank == 2) names[0] = "batch";
  return names;
}

}  // namespace

InputShape input_shape(const Source& source, std::uint32_t variable,
                       const std::map<std::string, std::vector<std::int64_t>>& given) {
  const Node& node = source.symbol.nodes()[variable];
  InputShape shape;
  if (const auto found = given.find(node.name); found != given.end()) {
    shape.dims = found->second;
  } else if (node.attrs.contains("__shape__")) {
    OnnxWriter unused;
    shape.dims = Call(source, node, {}, unused).list("__shape__");
    // The file holds the sizes of training: batches, and sizes of images, change.
    for (std::size_t i = 0; i < shape.dims->size(); ++i)
      if (i == 0 || (i >= 2 && shape.dims->size() >= 4)) (*shape.dims)[i] = 0;
  } else {
    shape.dims = dims_wanted(source, variable);
  }
  if (!shape.dims) {
    raise<ConfigError>("mxnet", "the graph does not tell how many dimensions '", node.name,
                       "' has; give its shape (--input ", node.name,
                       "=SIZE,SIZE, 0 where a size changes)");
  }
  constexpr std::int64_t kMostSize = std::int64_t{1} << 31;
  for (std::int64_t& size : *shape.dims) size = size > 0 && size <= kMostSize ? size : kUnknownSize;
  shape.names = names_of_sizes(node.name, shape.dims->size());
  const bool is_channels_last =
      shape.dims->size() == 4 && (*shape.dims)[1] < 0 && (*shape.dims)[3] > 0;
  if (is_channels_last) shape.names = {"batch", "height", "width", "channels"};
  return shape;
}

}  // namespace mezzo::convert::mxnet
