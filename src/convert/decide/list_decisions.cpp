// Decisions as plans and reports list them.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/body_ways.h"
#include "convert/onnx/concat.h"

namespace mezzo::convert {
namespace {

// In the place of a type variable.
constexpr std::string_view kPassage = "(value)";

void answer(const Decisions& decisions, Slot slot, Decision& decision) {
  const Slots& slots = decisions.map.slots;
  decision.low = decisions.is_low(slot);
  if (const Pin* pin = slots.pin_of(slot)) {
    decision.rule = name_of(pin->level);
    decision.why = pin->why;
    decision.pin = pin->by;
  } else {
    decision.rule = "cut";
    decision.why = decisions.is_for_table(slot) ? "a table takes half the bytes"
                   : decision.low               ? "its neighbours are low: fewest casts"
                                                : "fewest casts";
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

// The cut cannot choose for a node that takes the widest type of what it reads.
void name_wider_input(const Graph& graph, const ConvertPolicy& policy, const Decisions& decisions,
                      const Node& node, Decision& decision) {
  const bool is_forced = decision.rule == "cut" && !decision.low &&
                         policy.class_of(node.qualified_name()).cast == CastClass::kPromote;
  if (!is_forced) return;
  const auto is_wide = [&](ValueId id) {
    if (id == kNone || decisions.map.is_constant[static_cast<std::size_t>(id)]) return false;
    return decisions.map.native[static_cast<std::size_t>(id)] != kNoSlot &&
           !decisions.is_low_value(id);
  };
  const auto wide = std::ranges::find_if(node.inputs, is_wide);
  if (wide == node.inputs.end()) return;
  decision.why = concat(
      {"it takes the widest type of its inputs, and '", graph.value(*wide).name, "' is float32"});
}

}  // namespace

Decision question_about(const Graph& graph, const Node& node, std::size_t variable) {
  Decision decision = about(graph, node);
  decision.variable = node.schema->variables[variable].name;
  return decision;
}

std::vector<Decision> decisions_of(const Graph& graph, const ConvertPolicy& policy,
                                   const Decisions& decisions) {
  std::vector<Decision> list;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_decidable(node)) continue;
    const std::vector<Slot>& variables = decisions.map.variables[n];
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (variables[v] == kNoSlot) continue;
      Decision& decision = list.emplace_back(question_about(graph, node, v));
      answer(decisions, variables[v], decision);
      name_wider_input(graph, policy, decisions, node, decision);
    }
  }
  return list;
}

// Every slot that no node decides about belongs to a value that enters a body or function, or to
// one that a node with a body or a call gives.
std::vector<Passage> passages_of(const Graph& graph, const SlotMap& map) {
  std::vector<bool> is_known(map.slots.size());
  const auto known = [&](Slot slot) {
    return is_known[static_cast<std::size_t>(map.slots.root(slot))];
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!is_decidable(graph.nodes[n])) continue;
    for (const Slot slot : map.variables[n]) {
      if (slot != kNoSlot) known(slot) = true;
    }
  }
  std::vector<Passage> list;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const Slot slot = map.native[v];
    if (slot == kNoSlot || known(slot)) continue;
    const NodeId owner = value.is_scope_input ? graph.scope(value.scope).owner : value.producer;
    if (owner == kNone || !is_hollow(graph.node(owner))) continue;
    known(slot) = true;
    Passage passage{slot, about(graph, graph.node(owner))};
    passage.question.key = concat({graph.key_of(value.scope), value.name});
    passage.question.variable = kPassage;
    list.push_back(std::move(passage));
  }
  return list;
}

Decision question_about_table(const Graph& graph, ValueId constant) {
  const Value& value = graph.value(constant);
  Decision decision;
  decision.node = graph.describe(value);
  decision.key = concat({graph.key_of(value.scope), value.name});
  decision.variable = kStoredTable;
  return decision;
}

std::vector<Decision> planned_of(const Graph& graph, const Decisions& decisions) {
  std::vector<Decision> list = decisions.list;
  for (Passage& passage : passages_of(graph, decisions.map)) {
    answer(decisions, passage.slot, passage.question);
    list.push_back(std::move(passage.question));
  }
  for (const ValueId id : decisions.low_tables) {
    Decision& decision = list.emplace_back(question_about_table(graph, id));
    decision.low = true;
    decision.rule = "cut";
    decision.why = "a table takes half the bytes";
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
