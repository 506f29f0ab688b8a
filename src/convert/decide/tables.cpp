#include "convert/decide/tables.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

// Slots of nodes that only move tables, and what is theirs alone.
class MoversOfTables {
 public:
  MoversOfTables(const Graph& graph, const SlotMap& map, const std::vector<bool>& low)
      : graph_(graph),
        map_(map),
        low_(low),
        is_moved_(graph.values.size(), false),
        is_mover_(graph.nodes.size(), false),
        slots_(map.slots.size(), false) {}

  std::vector<bool> run(const std::vector<ValueId>& tables) {
    std::vector<ValueId> pending = tables;
    for (const ValueId id : tables) is_moved_[static_cast<std::size_t>(id)] = true;
    while (!pending.empty()) {
      const ValueId id = pending.back();
      pending.pop_back();
      for (const Use& use : graph_.value(id).uses) {
        if (use.node != kNone) take(use.node, pending);
      }
    }
    drop_shared();
    return std::move(slots_);
  }

 private:
  bool is_float(ValueId id) const { return id != kNone && is_float_based(graph_.value(id).type); }

  bool is_free(Slot slot) const {
    return slot != kNoSlot && map_.slots.pin_of(slot) == nullptr &&
           !low_[static_cast<std::size_t>(map_.slots.root(slot))];
  }

  void take(NodeId id, std::vector<ValueId>& pending) {
    const Node& node = graph_.node(id);
    if (is_mover_[static_cast<std::size_t>(id)] || !node.domain.empty() || !is_decidable(node) ||
        !node.bodies.empty() || !moves_values(node.op))
      return;
    const bool moves_tables_alone = std::ranges::all_of(node.inputs, [&](ValueId in) {
      return !is_float(in) || is_moved_[static_cast<std::size_t>(in)];
    });
    const auto& variables = map_.variables[static_cast<std::size_t>(id)];
    const std::size_t primary = primary_variable(graph_, map_, id);
    if (!moves_tables_alone || primary >= variables.size() || !is_free(variables[primary])) return;
    is_mover_[static_cast<std::size_t>(id)] = true;
    slots_[static_cast<std::size_t>(map_.slots.root(variables[primary]))] = true;
    for (const ValueId out : node.outputs) {
      if (!is_float(out)) continue;
      is_moved_[static_cast<std::size_t>(out)] = true;
      pending.push_back(out);
    }
  }

  // A type that another value or reader shares is not the table's alone.
  void drop_shared() {
    const auto drop = [&](Slot slot) {
      if (slot != kNoSlot) slots_[static_cast<std::size_t>(map_.slots.root(slot))] = false;
    };
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!is_moved_[v]) drop(map_.native[v]);
      const Value& value = graph_.values[v];
      for (std::size_t u = 0; u < value.uses.size(); ++u) {
        const NodeId reader = value.uses[u].node;
        if (reader == kNone || !is_mover_[static_cast<std::size_t>(reader)]) drop(map_.uses[v][u]);
      }
    }
  }

  const Graph& graph_;
  const SlotMap& map_;
  const std::vector<bool>& low_;
  std::vector<bool> is_moved_;  // per value: a table, or rows of one
  std::vector<bool> is_mover_;  // per node
  std::vector<bool> slots_;
};

}  // namespace

bool is_worth_a_cast(const Constants& constants, ValueId constant) {
  return constants.count(constant) / static_cast<std::uint64_t>(kWeightsPerCast) > 1;
}

bool reads_rounded_numbers(const Graph& graph, const SlotMap& map, ValueId table, std::size_t use) {
  const NodeId id = graph.value(table).uses[use].node;
  if (id == kNone || !graph.node(id).domain.empty() || !is_decidable(graph.node(id))) return false;
  const std::string_view op = graph.node(id).op;
  if (!moves_values(op) && op != "Add") return false;
  const Pin* pin = map.slots.pin_of(map.uses[static_cast<std::size_t>(table)][use]);
  if (pin == nullptr || pin->label == Label::kLow) return true;
  if (pin->level == Level::kPattern) return pin->by == "patterns";  // norms in pieces
  return pin->level == Level::kDefault || pin->level == Level::kValidity;
}

std::vector<bool> slots_of_moved_tables(const Graph& graph, const SlotMap& map,
                                        const std::vector<ValueId>& tables,
                                        const std::vector<bool>& low) {
  return MoversOfTables(graph, map, low).run(tables);
}

std::vector<ValueId> tables_behind_casts(const Graph& graph, const Decisions& decisions,
                                         const std::vector<ValueId>& tables) {
  std::vector<ValueId> stored;
  for (const ValueId id : tables) {
    const Value& value = graph.value(id);
    if (graph.scope(value.scope).owner != kNone) continue;  // a Cast there may be done very often
    bool has_float_reader = false;
    bool may_be_low = true;
    for (std::size_t u = 0; u < value.uses.size(); ++u) {
      if (decisions.is_low_use(id, u)) continue;
      has_float_reader = true;
      may_be_low = may_be_low && reads_rounded_numbers(graph, decisions.map, id, u);
    }
    if (has_float_reader && may_be_low) stored.push_back(id);
  }
  return stored;
}

std::vector<ValueId> planned_tables(const Graph& graph, Constants& constants, const SlotMap& map,
                                    const Plan& plan) {
  std::set<std::string_view> planned;
  for (const Decision& decision : plan.decisions) {
    if (decision.variable == kStoredTable && decision.low) planned.insert(decision.key);
  }
  std::vector<ValueId> tables;
  for (std::size_t v = 0; v < graph.values.size() && !planned.empty(); ++v) {
    const auto id = static_cast<ValueId>(v);
    if (!map.is_constant[v] || !planned.contains(question_about_table(graph, id).key)) continue;
    if (constants.facts(id).overflowing == 0) tables.push_back(id);
  }
  return tables;
}

}  // namespace mezzo::convert
