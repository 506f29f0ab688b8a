// Values whose type follows from nothing: made by operators that no table knows.
#include "convert/decide/decide.h"

namespace mezzo::convert {
namespace {

constexpr const char* kWhy = "it is bound to a value whose type is not known";

void pin_variable(const Graph& graph, SlotMap& map, NodeId id, std::size_t index, bool is_output) {
  const Schema* schema = graph.node(id).schema;
  if (schema == nullptr) return;
  const Formal* formal = is_output ? schema->output(index) : schema->input(index);
  const auto& variables = map.variables[static_cast<std::size_t>(id)];
  if (formal == nullptr || formal->variable >= variables.size()) return;
  map.slots.pin(variables[formal->variable], Label::kHigh, Level::kValidity, kWhy);
}

}  // namespace

void pin_unknown_types(const Graph& graph, SlotMap& map) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.type.is_known()) continue;
    for (const Slot slot : map.uses[v]) map.slots.pin(slot, Label::kHigh, Level::kValidity, kWhy);
    for (const Use& use : value.uses) {
      if (use.node != kNone)
        pin_variable(graph, map, use.node, static_cast<std::size_t>(use.input), false);
    }
    if (value.producer != kNone)
      pin_variable(graph, map, value.producer, static_cast<std::size_t>(value.output), true);
  }
}

}  // namespace mezzo::convert
