// Static danger patterns: places where rounding to 16 bits is known to go wrong whatever the
// weights are.
#include <algorithm>
#include <array>

#include "convert/concat.h"
#include "convert/decide.h"
#include "convert/rules.h"

namespace mezzo::convert {
namespace {

class Patterns {
 public:
  Patterns(const Graph& graph, SlotMap& map)
      : graph_(graph),
        map_(map),
        seen_(graph.nodes.size(), false),
        counts_(graph.values.size(), -1) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      if (is_float_to_integer(node)) indices(static_cast<NodeId>(n));
      if (node.op == "Sub") norm_in_pieces(node);
      if (is_matrix_product(node)) positions(static_cast<NodeId>(n));
      if (stores_float_weights(node)) continue;
      if (is_quantised_neighbour(node)) keep(static_cast<NodeId>(n), "part of a quantised region");
    }
  }

 private:
  Type type_of(ValueId id) const { return id == kNone ? Type() : graph_.value(id).type; }

  void keep(NodeId id, std::string_view why) {
    for (const Slot slot : map_.variables[static_cast<std::size_t>(id)]) {
      map_.slots.pin(slot, Label::kHigh, Level::kPattern, std::string(why));
    }
  }

  static bool is_integer(Element element) {
    return element == Element::kInt64 || element == Element::kInt32 || element == Element::kInt16 ||
           element == Element::kUint32 || element == Element::kUint64 ||
           element == Element::kUint16;
  }

  bool is_float_to_integer(const Node& node) const {
    return node.op == "Cast" && !node.inputs.empty() && is_float_based(type_of(node.inputs[0])) &&
           !node.outputs.empty() && is_integer(type_of(node.outputs[0]).element);
  }

  // Floats that become indices or sizes: everything elementwise on the way to them.
  void indices(NodeId start) {
    constexpr std::array<std::string_view, 30> kOnTheWay{
        "Abs",     "Add",   "Cast",       "Ceil",      "Clip",      "Concat",
        "Div",     "Exp",   "Expand",     "Floor",     "Gather",    "Identity",
        "Log",     "Max",   "Min",        "Mod",       "Mul",       "Neg",
        "Pow",     "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd",
        "Reshape", "Round", "Slice",      "Sqrt",      "Sub",       "Where"};
    std::vector<NodeId> stack{start};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen_[static_cast<std::size_t>(id)]) continue;
      seen_[static_cast<std::size_t>(id)] = true;
      keep(id, "its result becomes an index or a size");
      for (const ValueId in : graph_.node(id).inputs) {
        if (in == kNone || !is_float_based(type_of(in))) continue;
        const NodeId producer = graph_.value(in).producer;
        if (producer == kNone) continue;
        if (std::ranges::find(kOnTheWay, graph_.node(producer).op) != kOnTheWay.end()) {
          stack.push_back(producer);
        }
      }
    }
  }

  // x - mean(x): a normalisation in pieces. What it reads stays float32, as the sum of residuals
  // that it usually is, unless a heavy operator makes it; a Cast in front of it would also mislead
  // the fusion of ONNX Runtime, which then mixes types.
  void norm_in_pieces(const Node& node) {
    if (node.inputs.size() != 2 || node.inputs[0] == kNone || node.inputs[1] == kNone) return;
    const NodeId mean = graph_.value(node.inputs[1]).producer;
    if (mean == kNone || graph_.node(mean).op != "ReduceMean" || graph_.node(mean).inputs.empty() ||
        graph_.node(mean).inputs[0] != node.inputs[0])
      return;
    const NodeId producer = graph_.value(node.inputs[0]).producer;
    const Rule* rule =
        producer == kNone ? nullptr : find_rule(graph_.node(producer).qualified_name());
    if (rule != nullptr && rule->own == CastClass::kLow) return;
    map_.slots.pin(map_.native[static_cast<std::size_t>(node.inputs[0])], Label::kHigh,
                   Level::kPattern, "read by a normalisation in pieces");
  }

  static bool is_matrix_product(const Node& node) {
    return node.op == "MatMul" || node.op == "Gemm" || node.op == "Einsum";
  }

  static bool is_product(const Node& node) {
    return is_matrix_product(node) || node.op == "Conv" || node.op == "ConvTranspose";
  }

  // Products with counted positions (angles of rotary embeddings): half counts to 2048 only.
  void positions(NodeId id) {
    for (const ValueId in : graph_.node(id).inputs) {
      if (in != kNone && counts(in, 0)) return keep(id, "multiplies integer positions");
    }
  }

  bool counts(ValueId id, int depth) {
    auto& known = counts_[static_cast<std::size_t>(id)];
    if (known >= 0) return known != 0;
    if (depth > 32 || !is_float_based(type_of(id))) return false;
    known = 0;
    const NodeId producer = graph_.value(id).producer;
    if (producer == kNone) return false;
    const Node& node = graph_.node(producer);
    bool answer = node.op == "Range";
    if (node.op == "Cast" && !node.inputs.empty())
      answer = is_integer(type_of(node.inputs[0]).element);
    const Rule* rule = find_rule(node.qualified_name());
    if (rule != nullptr && rule->moves && node.op != "Where" && !node.inputs.empty() &&
        node.inputs[0] != kNone) {
      answer = counts(node.inputs[0], depth + 1);
    }
    counts_[static_cast<std::size_t>(id)] = answer ? 1 : 0;
    return answer;
  }

  bool is_dequantised(ValueId id) const {
    if (id == kNone || graph_.value(id).producer == kNone) return false;
    return graph_.node(graph_.value(id).producer).op == "DequantizeLinear";
  }

  // The value whose elements these are, in another order or shape.
  ValueId rearranged(ValueId id) const {
    constexpr std::array<std::string_view, 7> kRearrange{
        "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"};
    constexpr int kFar = 8;
    for (int i = 0; i < kFar && id != kNone && graph_.value(id).producer != kNone; ++i) {
      const Node& node = graph_.node(graph_.value(id).producer);
      if (std::ranges::find(kRearrange, node.op) == kRearrange.end() || node.inputs.empty()) break;
      id = node.inputs[0];
    }
    return id;
  }

  // A product of integers has both its factors from DequantizeLinear. Weights alone that come from
  // there are float weights in small storage.
  bool multiplies_integers(const Node& node) const {
    return node.inputs.size() > 1 && is_dequantised(rearranged(node.inputs[0])) &&
           is_dequantised(rearranged(node.inputs[1]));
  }

  // Are these weights of products of floats, stored as integers?
  bool stores_float_weights(const Node& node) const {
    if (node.op != "DequantizeLinear" || node.inputs.empty() || node.inputs[0] == kNone ||
        graph_.constant(node.inputs[0]) == nullptr || node.outputs.empty() ||
        node.outputs[0] == kNone)
      return false;
    const auto& uses = graph_.value(node.outputs[0]).uses;
    return !uses.empty() && std::ranges::all_of(uses, [&](const Use& use) {
      if (use.node == kNone || !is_product(graph_.node(use.node))) return false;
      return use.input < 2 && !multiplies_integers(graph_.node(use.node));
    });
  }

  bool is_quantised_neighbour(const Node& node) const {
    if (node.op == "DequantizeLinear" || node.op == "QuantizeLinear" ||
        node.op == "DynamicQuantizeLinear")
      return true;
    const auto to = [&](ValueId out) {
      return out != kNone && std::ranges::any_of(graph_.value(out).uses, [&](const Use& use) {
               if (use.node == kNone) return false;
               const std::string_view op = graph_.node(use.node).op;
               return (op == "QuantizeLinear" || op == "DynamicQuantizeLinear") && use.input == 0;
             });
    };
    // Arithmetic on integer products: scales that must keep their digits.
    const auto rescales = [&](ValueId in) {
      if (in == kNone || graph_.value(in).producer == kNone) return false;
      const Node& producer = graph_.node(graph_.value(in).producer);
      if (producer.op == "DynamicQuantizeLinear") return true;
      if (producer.op != "Cast" || producer.inputs.empty() || producer.inputs[0] == kNone)
        return false;
      const NodeId source = graph_.value(producer.inputs[0]).producer;
      return source != kNone &&
             (graph_.node(source).op == "MatMulInteger" || graph_.node(source).op == "ConvInteger");
    };
    const auto is_read = [&](const auto& what) { return std::ranges::any_of(node.inputs, what); };
    const bool reads_integers = is_product(node)
                                    ? multiplies_integers(node)
                                    : is_read([&](ValueId in) { return is_dequantised(in); });
    return reads_integers || std::ranges::any_of(node.outputs, to) || is_read(rescales);
  }

  const Graph& graph_;
  SlotMap& map_;
  std::vector<bool> seen_;
  std::vector<std::int8_t> counts_;
};

}  // namespace

void pin_patterns(const Graph& graph, SlotMap& map) {
  Patterns(graph, map).run();
}

}  // namespace mezzo::convert
