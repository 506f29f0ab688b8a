// Regions of integer arithmetic.
#include "convert/decide/pins/quantised.h"

#include <algorithm>
#include <array>

#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

class QuantisedRegions {
 public:
  explicit QuantisedRegions(const Graph& graph) : graph_(graph) {}

  // Are these weights of products of floats, stored as integers?
  bool stores_float_weights(const Node& node) const {
    if (node.op != "DequantizeLinear" || node.inputs.empty() || node.inputs[0] == kNone ||
        graph_.constant(node.inputs[0]) == nullptr || node.outputs.empty() ||
        node.outputs[0] == kNone)
      return false;
    const auto& uses = graph_.value(node.outputs[0]).uses;
    return !uses.empty() && std::ranges::all_of(uses, [&](const Use& use) {
      if (use.node == kNone || !is_product(graph_.node(use.node).op)) return false;
      return use.input < 2 && !multiplies_integers(graph_.node(use.node));
    });
  }

  bool contains(const Node& node) const {
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
    const bool reads_integers = is_product(node.op)
                                    ? multiplies_integers(node)
                                    : is_read([&](ValueId in) { return is_dequantised(in); });
    return reads_integers || std::ranges::any_of(node.outputs, to) || is_read(rescales);
  }

 private:
  bool is_dequantised(ValueId id) const {
    if (id == kNone || graph_.value(id).producer == kNone) return false;
    return graph_.node(graph_.value(id).producer).op == "DequantizeLinear";
  }

  // The value whose elements these are, in another order or shape.
  ValueId rearranged(ValueId id) const {
    if (id == kNone) return kNone;
    constexpr std::array<std::string_view, 7> kRearrange{
        "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"};
    return walk_back(graph_, {id}, {},
                     [&](ValueId, const Node* node) {
                       const bool is_moved =
                           node != nullptr &&
                           std::ranges::find(kRearrange, node->op) != kRearrange.end();
                       return is_moved ? Onward::kFirst : Onward::kStop;
                     })
        .back();
  }

  // A product of integers has both its factors from DequantizeLinear. Weights alone that come from
  // there are float weights in small storage.
  bool multiplies_integers(const Node& node) const {
    return node.inputs.size() > 1 && is_dequantised(rearranged(node.inputs[0])) &&
           is_dequantised(rearranged(node.inputs[1]));
  }

  const Graph& graph_;
};

}  // namespace

bool is_quantised(const Graph& graph, const Node& node) {
  return QuantisedRegions(graph).contains(node);
}

bool stores_float_weights(const Graph& graph, const Node& node) {
  return QuantisedRegions(graph).stores_float_weights(node);
}

}  // namespace mezzo::convert
