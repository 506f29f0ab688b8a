#include "convert/decide/pins/roles.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "convert/graph/walk.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

bool is_heavy(const Node& node, Element low) {
  return node.domain.empty() && node.op != "Attention" &&
         default_class(node.op, low) == CastClass::kLow;
}

// A root, or one divided by a power.
bool has_small_exponent(const Graph& graph, const Node& power) {
  if (power.inputs.size() != 2 || power.inputs[1] == kNone) return false;
  const Message* tensor = graph.constant(power.inputs[1]);
  if (tensor == nullptr) return false;
  const auto values = small_values(read_tensor(graph.document(), *tensor), 1);
  return values.size() == 1 && values[0] < 1;
}

bool is_guarded(const Graph& graph, const Node& reader, int index) {
  if (!reader.domain.empty()) return false;
  if (reader.op == "Div") return index == 1;
  if (reader.op == "Pow") return index == 0 && has_small_exponent(graph, reader);
  return is_one_of(reader.op, {"Sqrt", "Log", "Reciprocal"});
}

}  // namespace

bool is_arithmetic(const Node& node) {
  return is_one_of(node.op, {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Where",
                             "Pow", "Mod", "Clip", "Pad"});
}

bool is_open_bound(const Node& node, int index, const std::vector<double>& values) {
  if (node.op != "Clip" || values.size() != 1) return false;
  return index == 1 ? values[0] < 0 : index == 2 && values[0] > 0;
}

bool is_bias(const Graph& graph, const Node& node, int index, std::uint64_t count, Element low) {
  if (is_one_of(node.op, {"Conv", "ConvTranspose", "Gemm", "BatchNormalization",
                          "InstanceNormalization", "LayerNormalization", "GroupNormalization"}))
    return index == 2;
  if (is_one_of(node.op, {"LSTM", "GRU", "RNN", "DeformConv"})) return index == 3;
  // A single value added to a product may well be an epsilon.
  if (node.op != "Add" || node.inputs.size() != 2 || count == 1) return false;
  const ValueId other = node.inputs[index == 0 ? 1 : 0];
  const NodeId producer = other == kNone ? kNone : graph.value(other).producer;
  return producer != kNone && graph.node(producer).domain.empty() &&
         default_class(graph.node(producer).op, low) == CastClass::kLow;
}

bool is_weight(const Graph& graph, Constants& constants, ValueId id, const Node& node, int index,
               Element low) {
  const std::uint64_t count = constants.count(id);
  if (is_arithmetic(node)) {
    if (is_one_of(node.op, {"Mul", "Div"})) return count > 1;
    return is_bias(graph, node, index, count, low) && constants.ends(id).first > -overflows_at(low);
  }
  constexpr std::string_view kNorm = "Normalization";
  return is_heavy(node, low) || node.op.ends_with(kNorm) || node.op == "PRelu" ||
         (node.op == "Gather" && index == 0);
}

bool is_epsilon(const Graph& graph, std::uint64_t count, const Node& node, int index) {
  if (count != 1 || !node.domain.empty()) return false;
  const bool is_lower_bound = node.op == "Clip" && index == 1;
  return (is_lower_bound || is_one_of(node.op, {"Add", "Max", "Sum"})) && guards(graph, node);
}

bool is_tiny_bound(const Graph& graph, const Node& clip, double bound, Element low) {
  return bound > 0 && bound < smallest_normal(low) && guards(graph, clip);
}

bool guards(const Graph& graph, const Node& node) {
  bool found = false;
  walk_on(graph, node.outputs, {}, [&](ValueId, const Use& use, const Node& reader) {
    found = found || is_guarded(graph, reader, use.input);
    const bool is_moved = moves_values(reader.op) && use.input == 0;
    return is_moved && !found ? Onward::kFirst : Onward::kStop;
  });
  return found;
}

}  // namespace mezzo::convert
