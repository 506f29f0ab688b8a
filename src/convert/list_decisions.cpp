// Decisions as plans and reports list them.
#include <algorithm>

#include "convert/body_ways.h"
#include "convert/concat.h"
#include "convert/decide.h"

namespace mezzo::convert {
namespace {

void answer(const Decisions& decisions, Slot slot, Decision& decision) {
  const Slots& slots = decisions.map.slots;
  decision.low = decisions.is_low(slot);
  if (const Pin* pin = slots.pin_of(slot)) {
    decision.rule = name_of(pin->level);
    decision.why = pin->why;
  } else {
    decision.rule = "cut";
    decision.why = decision.low ? "its neighbours are low: fewest casts" : "fewest casts";
  }
  if (const Pin* lost = slots.overruled(slot))
    decision.otherwise = concat({"low by ", name_of(lost->level), ": ", lost->why});
}

Decision about(const Graph& graph, const Node& node) {
  Decision decision;
  decision.node = graph.describe(node);
  decision.key = graph.key_of(node);
  decision.op = node.op;
  return decision;
}

bool touches_floats(const Graph& graph, const Node& node) {
  const auto is_float = [&](ValueId id) {
    return id != kNone && is_float_based(graph.value(id).type);
  };
  return std::ranges::any_of(node.inputs, is_float) || std::ranges::any_of(node.outputs, is_float);
}

}  // namespace

Decision question_about(const Graph& graph, const Node& node, std::size_t variable) {
  Decision decision = about(graph, node);
  decision.variable = node.schema->variables[variable].name;
  return decision;
}

std::vector<Decision> decisions_of(const Graph& graph, const Decisions& decisions) {
  std::vector<Decision> list;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_decidable(node)) continue;
    const std::vector<Slot>& variables = decisions.map.variables[n];
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (variables[v] == kNoSlot) continue;
      answer(decisions, variables[v], list.emplace_back(question_about(graph, node, v)));
    }
  }
  return list;
}

std::vector<Decision> consequences_of(const Graph& graph, const Decisions& decisions) {
  std::vector<Decision> list;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const std::vector<Slot>& variables = decisions.map.variables[n];
    if (!is_decidable(node) && node.op != "Constant" && touches_floats(graph, node)) {
      for (std::size_t v = 0; v < variables.size(); ++v) {
        if (variables[v] == kNoSlot) continue;
        Decision decision = about(graph, node);
        decision.op = node.qualified_name();
        if (node.schema != nullptr) decision.variable = node.schema->variables[v].name;
        answer(decisions, variables[v], decision);
        list.push_back(std::move(decision));
      }
    }
    if (!is_hollow(node) || !variables.empty()) continue;
    for (const ValueId out : node.outputs) {
      const Slot slot =
          out == kNone ? kNoSlot : decisions.map.native[static_cast<std::size_t>(out)];
      if (slot == kNoSlot) continue;
      Decision decision = about(graph, node);
      decision.variable = graph.value(out).name;
      answer(decisions, slot, decision);
      list.push_back(std::move(decision));
    }
  }
  return list;
}

}  // namespace mezzo::convert
