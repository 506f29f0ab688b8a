// Static danger patterns: places where rounding to 16 bits is known to go wrong whatever the
// weights are.
#include <algorithm>
#include <array>

#include "convert/decide/decide.h"
#include "convert/decide/pins/joined_norms.h"
#include "convert/decide/pins/quantised.h"
#include "convert/graph/body_ways.h"
#include "convert/standard/rules.h"

namespace mezzo::convert {
namespace {

class Patterns {
 public:
  Patterns(const Graph& graph, const Constants& constants, SlotMap& map)
      : graph_(graph),
        constants_(constants),
        map_(map),
        seen_(graph.values.size(), false),
        counts_(graph.values.size(), -1) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      if (is_float_to_integer(node)) indices(static_cast<NodeId>(n));
      if (node.op == "Sub") norm_in_pieces(node);
      if (is_matrix_product(node)) positions(static_cast<NodeId>(n));
      if (stores_float_weights(graph_, node)) continue;
      if (is_quantised(graph_, node)) keep(static_cast<NodeId>(n), "part of a quantised region");
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
    constexpr std::array<std::string_view, 35> kOnTheWay{
        "Abs",        "Add",       "Cast",       "Ceil",      "Clip",       "Concat",    "Div",
        "Exp",        "Expand",    "Floor",      "Gather",    "Identity",   "Log",       "Max",
        "Mean",       "Min",       "Mod",        "Mul",       "Neg",        "Pow",       "Range",
        "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
        "Round",      "Sign",      "Slice",      "Sqrt",      "Sub",        "Sum",       "Where"};
    constexpr std::string_view kWhy = "its result becomes an index or a size";
    std::vector<ValueId> stack;
    const auto read = [&](const std::vector<ValueId>& values) {
      for (const ValueId id : values) {
        if (id == kNone || !is_float_based(type_of(id)) || seen_[static_cast<std::size_t>(id)])
          continue;
        seen_[static_cast<std::size_t>(id)] = true;
        stack.push_back(id);
      }
    };
    keep(start, kWhy);
    read(graph_.node(start).inputs);
    while (!stack.empty()) {
      const Value& value = graph_.value(stack.back());
      stack.pop_back();
      const auto at = static_cast<std::size_t>(value.output);
      if (value.is_scope_input) read(values_before_entry(graph_, value.scope, at));
      if (value.producer == kNone) continue;
      const Node& node = graph_.node(value.producer);
      const Rule* rule = find_rule(node.qualified_name());
      if (is_hollow(node)) {
        read(values_before_output(graph_, node, at));
      } else if ((rule != nullptr && rule->moves) ||
                 std::ranges::find(kOnTheWay, node.op) != kOnTheWay.end()) {
        keep(value.producer, kWhy);
        read(node.inputs);
      }
    }
  }

  // x - mean(x): a normalisation in pieces. What it reads stays float32, as the sum of residuals
  // that it usually is, unless a heavy operator makes it; a Cast in front of it would also mislead
  // the fusion of ONNX Runtime, which then mixes types.
  void norm_in_pieces(const Node& node) {
    const ValueId input = centred_by(graph_, constants_, node);
    if (input == kNone) return;
    const NodeId producer = graph_.value(input).producer;
    const Rule* rule =
        producer == kNone ? nullptr : find_rule(graph_.node(producer).qualified_name());
    if (rule != nullptr && rule->own == CastClass::kLow) return;
    map_.slots.pin(map_.native[static_cast<std::size_t>(input)], Label::kHigh, Level::kPattern,
                   "read by a normalisation in pieces");
  }

  static bool is_matrix_product(const Node& node) {
    return node.op == "MatMul" || node.op == "Gemm" || node.op == "Einsum";
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

  const Graph& graph_;
  const Constants& constants_;
  SlotMap& map_;
  std::vector<bool> seen_;  // values that become indices
  std::vector<std::int8_t> counts_;
};

}  // namespace

void pin_patterns(const Graph& graph, const Constants& constants, SlotMap& map) {
  Patterns(graph, constants, map).run();
}

}  // namespace mezzo::convert
