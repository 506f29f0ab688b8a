// Inputs that a caller wants in the low type, though what they hold is counted.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/walk.h"
#include "convert/onnx/concat.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

bool is_integer_cast(const Graph& graph, const Node& node) {
  if (node.op != "Cast" || node.outputs.empty() || node.outputs[0] == kNone) return false;
  const Element to = graph.value(node.outputs[0]).type.element;
  return to == Element::kInt64 || to == Element::kInt32;
}

// Rounding to whole numbers has counted ones in mind.
bool rounds(const Node& node) {
  return node.op == "Floor" || node.op == "Ceil" || node.op == "Round";
}

}  // namespace

std::vector<std::string> warnings_of_narrowed_ids(const Graph& graph, const ConvertPolicy& policy) {
  std::vector<std::string> warnings;
  const int counts_to = policy.low() == Element::kFloat16 ? 2048 : 256;
  for (const ValueId in : graph.scope(0).inputs) {
    const Value& value = graph.value(in);
    if (value.type != tensor_of(Element::kFloat) ||
        policy.io_label(std::string(value.name)) != Label::kLow)
      continue;
    bool is_counted = false;
    walk_on(graph, {in}, {}, [&](ValueId, const Use&, const Node& node) {
      is_counted = is_counted || is_integer_cast(graph, node);
      const bool is_count = moves_values(node.op) || rounds(node);
      return !is_counted && is_count ? Onward::kAll : Onward::kStop;
    });
    if (!is_counted) continue;
    warnings.push_back(concat(
        {"the input '", value.name, "' is asked for in ", name_of(policy.low()),
         ", which counts to ", std::to_string(counts_to),
         " only, though the model makes integers of it; Options::io_of can ", "leave it float32"}));
  }
  return warnings;
}

}  // namespace mezzo::convert
