// Static danger patterns: places where rounding to 16 bits is known to go wrong whatever the
// weights are.
#include "convert/decide/pin_context.h"
#include "convert/decide/pins/joined_norms.h"
#include "convert/decide/pins/pins.h"
#include "convert/decide/pins/quantised.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kIndexWhy = "its result becomes an index or a size";

class Patterns {
 public:
  explicit Patterns(const PinContext& context)
      : graph_(context.graph),
        constants_(context.constants),
        map_(context.map),
        seen_(graph_.values.size(), false) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      if (is_float_to_integer(node)) indices(static_cast<NodeId>(n));
      if (node.op == "Resize" || node.op == "Upsample") scales(node);
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
    keep(start, kIndexWhy);
    made_of(graph_.node(start).inputs);
  }

  // Scales say how large the result is, one element more or less.
  void scales(const Node& node) {
    const std::size_t input = node.inputs.size() > 2 ? 2 : 1;
    if (input < node.inputs.size() && node.inputs[input] != kNone) made_of({node.inputs[input]});
  }

  void made_of(const std::vector<ValueId>& floats) {
    const auto visit = [&](ValueId id, const Node* node) {
      if (!is_float_based(type_of(id))) return Onward::kStop;
      if (node == nullptr) return Onward::kAll;
      if (!is_between(node->op) && node->op != "Range") return Onward::kStop;
      keep(graph_.value(id).producer, kIndexWhy);
      return Onward::kAll;
    };
    walk_back(graph_, floats, {.farthest = graph_.values.size()}, visit, &seen_);
  }

  // x - mean(x): a normalisation in pieces. Its input, usually a sum of residuals, stays float32
  // unless a heavy operator makes it; a Cast in front of it would also mislead the fusion of ONNX
  // Runtime, which then mixes types.
  void norm_in_pieces(const Node& node) {
    const ValueId input = centred_by(graph_, constants_, node);
    if (input == kNone) return;
    const NodeId producer = graph_.value(input).producer;
    if (producer != kNone && is_product(graph_.node(producer).qualified_name())) return;
    map_.slots.pin(map_.native[static_cast<std::size_t>(input)], Label::kHigh, Level::kPattern,
                   "read by a normalisation in pieces");
  }

  static bool is_matrix_product(const Node& node) {
    return node.op == "MatMul" || node.op == "Gemm" || node.op == "Einsum";
  }

  // Products with counted positions (angles of rotary embeddings): half counts to 2048 only.
  void positions(NodeId id) {
    for (const ValueId in : graph_.node(id).inputs) {
      if (in != kNone && counts(in)) return keep(id, "multiplies integer positions");
    }
  }

  // Is it integers made floats, moved or not?
  bool counts(ValueId id) const {
    bool does = false;
    walk_back(graph_, {id}, {}, [&](ValueId at, const Node* node) {
      if (node == nullptr || !is_float_based(type_of(at))) return Onward::kStop;
      const bool is_cast = node->op == "Cast" && !node->inputs.empty();
      does = node->op == "Range" || (is_cast && is_integer(type_of(node->inputs[0]).element));
      return moves_values(node->op) && node->op != "Where" ? Onward::kFirst : Onward::kStop;
    });
    return does;
  }

  const Graph& graph_;
  const Constants& constants_;
  SlotMap& map_;
  std::vector<bool> seen_;  // values that become indices
};

}  // namespace

void pin_patterns(const PinContext& context) {
  Patterns(context).run();
}

}  // namespace mezzo::convert
