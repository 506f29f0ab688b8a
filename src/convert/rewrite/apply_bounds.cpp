// Changes to constants that the caller allows besides rounding them: weights are clamped,
// epsilons are raised.
#include <bit>
#include <cmath>

#include "convert/decide/pins/roles.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/editor.h"

namespace mezzo::convert {

void Editor::settle_bounds() {
  if (!decisions_.allowed.clamping && !decisions_.allowed.raising) return;
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const auto id = static_cast<ValueId>(v);
    if (!is_constant(id)) continue;
    const Bounds bounds = bounds_for(id);
    if (bounds.is_open()) continue;
    bounds_.emplace(id, bounds);
    report_bounds(id, bounds);
  }
}

bool Editor::is_read_low(ValueId id, std::size_t use) const {
  return is_stored_low_only(id) || decisions_.is_low_use(id, use);
}

Bounds Editor::bounds_for(ValueId id) {
  const Value& value = graph_.value(id);
  Bounds bounds;
  for (std::size_t u = 0; u < value.uses.size(); ++u) {
    if (!is_read_low(id, u)) continue;
    const ConstantFacts& facts = constants_.facts(id);
    const bool is_tiny = facts.smallest != 0 && facts.smallest < smallest_normal(low_);
    if (facts.overflowing == 0 && !is_tiny) break;
    const Use& use = value.uses[u];
    const Node* reader = use.node == kNone ? nullptr : &graph_.node(use.node);
    const bool is_open =
        reader != nullptr && is_open_bound(*reader, use.input, constants_.values(id));
    if (decisions_.allowed.clamping && facts.overflowing != 0 && !is_open)
      bounds.most = static_cast<float>(largest(low_));
    if (decisions_.allowed.raising && is_tiny && reader != nullptr &&
        is_epsilon(graph_, facts.count, *reader, use.input))
      bounds.least = static_cast<float>(smallest_normal(low_));
  }
  return bounds;
}

Bounds Editor::bounds_of(ValueId id) const {
  const auto found = bounds_.find(id);
  return found == bounds_.end() ? Bounds() : found->second;
}

void Editor::report_bounds(ValueId id, const Bounds& bounds) {
  const Value& value = graph_.value(id);
  const ConstantFacts& facts = constants_.facts(id);
  const auto [lowest, highest] = constants_.ends(id);
  const double extreme = -lowest > highest ? lowest : highest;
  const bool is_raised = bounds.least != 0;
  changes_.adjusted.push_back({std::string(value.name), graph_.path_of(value.scope),
                               is_raised ? "raised" : "clamped",
                               static_cast<std::int64_t>(is_raised ? 1 : facts.overflowing),
                               extreme, bounds.bring(static_cast<float>(extreme))});
}

// In opsets below 11 the lower bound of Clip stands in an attribute.
void Editor::raise_bound(NodeId id, const Node& node, Message& message) {
  if (!decisions_.allowed.raising || node.op != "Clip" || !node.domain.empty()) return;
  const auto& variables = decisions_.map.variables[static_cast<std::size_t>(id)];
  const std::size_t primary = primary_variable(graph_, decisions_.map, id);
  if (primary >= variables.size() || !decisions_.is_low(variables[primary])) return;
  for (Field& field : message.fields()) {
    if (field.number != field::node::kAttribute) continue;
    Field* number = field.open().text(field::attribute::kName) != "min"
                        ? nullptr
                        : field.open().find(field::attribute::kFloat);
    if (number == nullptr || number->wire != Wire::kFixed32) continue;
    const double bound = std::bit_cast<float>(static_cast<std::uint32_t>(number->value));
    if (!is_tiny_bound(graph_, node, bound, low_)) continue;
    const auto raised = static_cast<float>(smallest_normal(low_));
    number->set_value(std::bit_cast<std::uint32_t>(raised));
    number->wire = Wire::kFixed32;
    changes_.adjusted.push_back({"min of " + graph_.describe(node), graph_.path_of(node.scope),
                                 "raised", 1, bound, raised});
  }
}

}  // namespace mezzo::convert
