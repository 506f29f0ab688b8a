// Where Casts stand: the minimum cut over all slots that no pin decides.
#include <algorithm>
#include <set>

#include "convert/decide/cut.h"
#include "convert/decide/tables.h"
#include "convert/graph/sizes.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

// A Cast reads an element in one type and writes it in the other.
constexpr std::int64_t kBytesOfCast = 4 + 2;
constexpr int kLoopFactor = 8;
constexpr int kDeepestLoop = 3;

class Placement {
 public:
  Placement(const Graph& graph, const ConvertPolicy& policy, const SlotMap& map)
      : graph_(graph), policy_(policy), map_(map), sizes_(estimated_sizes(graph)) {}

  std::vector<bool> solve() {
    Cut cut(map_.slots.size());
    float_weights_ = cut.add_variable();
    cut.pay_if_low(float_weights_, Cut::kInfinite);
    for (Slot slot = 0; slot < static_cast<Slot>(map_.slots.size()); ++slot) {
      if (map_.slots.root(slot) != slot) continue;
      if (is_pinned(slot, Label::kHigh)) cut.pay_if_low(slot, Cut::kInfinite);
      if (is_pinned(slot, Label::kLow)) cut.pay_if_high(slot, Cut::kInfinite);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) add_value(cut, static_cast<ValueId>(v));
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) add_node(cut, static_cast<NodeId>(n));
    return answer_of(cut);
  }

  // All slots but these stay as they are.
  std::vector<bool> solve_again(const std::vector<bool>& low, const std::vector<bool>& movers,
                                const std::vector<ValueId>& tables, const Constants& constants) {
    Cut cut(map_.slots.size());
    for (Slot slot = 0; slot < static_cast<Slot>(map_.slots.size()); ++slot) {
      if (map_.slots.root(slot) != slot || movers[static_cast<std::size_t>(slot)]) continue;
      low[static_cast<std::size_t>(slot)] ? cut.pay_if_high(slot, Cut::kInfinite)
                                          : cut.pay_if_low(slot, Cut::kInfinite);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) add_value(cut, static_cast<ValueId>(v));
    for (const ValueId table : tables) add_table(cut, table, constants);
    return answer_of(cut);
  }

 private:
  std::vector<bool> answer_of(const Cut& cut) const {
    std::vector<bool> answer = cut.solve();
    answer.resize(map_.slots.size());
    return answer;
  }

  // A table is stored in float32 once, however many of its readers want it so.
  void add_table(Cut& cut, ValueId id, const Constants& constants) const {
    const std::int32_t stored = cut.add_variable();
    cut.pay_if_high(stored, {static_cast<std::int64_t>(constants.count(id)) / kWeightsPerCast});
    for (const Slot reader : map_.uses[static_cast<std::size_t>(id)]) {
      if (reader != kNoSlot) cut.pay_if_split(map_.slots.root(reader), stored, Cut::kInfinite);
    }
  }

  int loop_depth(ScopeId id) const {
    int depth = 0;
    for (; id != kNone;
         id = graph_.scope(id).owner == kNone ? kNone : graph_.node(graph_.scope(id).owner).scope) {
      const NodeId owner = graph_.scope(id).owner;
      if (owner != kNone && graph_.node(owner).op != "If" && graph_.node(owner).instance == kNone)
        ++depth;
    }
    return std::min(depth, kDeepestLoop);
  }

  bool is_pinned(Slot slot, Label label) const {
    const Pin* pin = map_.slots.pin_of(slot);
    return pin != nullptr && pin->label == label;
  }

  // A value is cast once in each direction, however many readers it has.
  void add_value(Cut& cut, ValueId id) {
    const auto v = static_cast<std::size_t>(id);
    // Weights that stay float32 are made so, and cast for whoever reads them low.
    const bool is_cast = map_.is_constant[v] && !policy_.options().cast_optional_params;
    if (map_.native[v] == kNoSlot && !is_cast) return;
    const Slot made = is_cast ? float_weights_ : map_.slots.root(map_.native[v]);
    std::set<Slot> readers;
    for (const Slot slot : map_.uses[v]) {
      if (slot != kNoSlot && map_.slots.root(slot) != made) readers.insert(map_.slots.root(slot));
    }
    if (readers.empty()) return;
    std::int64_t turns = 1;
    for (int i = loop_depth(graph_.value(id).scope); i > 0; --i) turns *= kLoopFactor;
    const Cost cost{turns, turns * kBytesOfCast * sizes_[v]};
    const bool is_free = low_source(graph_, id, policy_.low()) != kNone;
    if (readers.size() == 1) {
      cut.pay_if_split(made, *readers.begin(), is_free ? Cost{} : cost);
      cut.pay_if_split(*readers.begin(), made, cost);
      return;
    }
    const std::int32_t down = cut.add_variable();
    const std::int32_t up = cut.add_variable();
    cut.pay_if_split(made, down, is_free ? Cost{} : cost);
    cut.pay_if_split(up, made, cost);
    for (const Slot reader : readers) {
      cut.pay_if_split(down, reader, Cut::kInfinite);
      cut.pay_if_split(reader, up, Cut::kInfinite);
    }
  }

  // Does the node only move values, and do all that read them, behind whatever moves them on, want
  // them low? Then rounding before it is rounding after it: an embedding beside a float feature.
  bool is_rounded_anyway(const Node& node) const {
    if (!moves_values(node.qualified_name())) return false;
    std::vector<ValueId> ahead = node.outputs;
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      if (ahead[i] == kNone) continue;
      if (ahead.size() > kFarthestWalk) return false;
      const Value& value = graph_.value(ahead[i]);
      for (std::size_t u = 0; u < value.uses.size(); ++u) {
        const Slot slot = map_.uses[static_cast<std::size_t>(ahead[i])][u];
        if (slot != kNoSlot && is_pinned(slot, Label::kLow)) continue;
        if (value.uses[u].node == kNone || slot == kNoSlot || is_pinned(slot, Label::kHigh))
          return false;
        const Node& reader = graph_.node(value.uses[u].node);
        if (!moves_values(reader.qualified_name())) return false;
        ahead.insert(ahead.end(), reader.outputs.begin(), reader.outputs.end());
      }
    }
    return true;
  }

  void add_node(Cut& cut, NodeId id) {
    const Node& node = graph_.node(id);
    const auto& variables = map_.variables[static_cast<std::size_t>(id)];
    if (!is_decidable(node) || variables.empty()) return;
    const std::size_t primary = primary_variable(graph_, map_, id);
    if (primary >= variables.size()) return;
    const Slot slot = map_.slots.root(variables[primary]);
    if (moves_values(node.qualified_name())) {
      cut.pay_if_high(slot, {0, 0, 2});
    } else {
      cut.pay_if_low(slot, {0, 0, 1});
    }
    const ClassOf rule = policy_.class_of(node.qualified_name());
    if (rule.cast != CastClass::kPromote || is_pinned(slot, Label::kLow)) return;
    if (rule.level == Level::kDefault && is_rounded_anyway(node)) return;
    for (const ValueId in : node.inputs) {
      const Slot made = in == kNone ? kNoSlot : map_.native[static_cast<std::size_t>(in)];
      if (made != kNoSlot) cut.pay_if_split(map_.slots.root(made), slot, Cut::kInfinite);
    }
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  const SlotMap& map_;
  std::vector<std::int64_t> sizes_;  // per value
  std::int32_t float_weights_ = 0;   // high, whatever the answer is
};

}  // namespace

std::vector<bool> place_casts(const Graph& graph, const ConvertPolicy& policy, const SlotMap& map) {
  return Placement(graph, policy, map).solve();
}

std::vector<bool> place_casts_for_tables(const Graph& graph, const ConvertPolicy& policy,
                                         const SlotMap& map, const Constants& constants,
                                         const std::vector<ValueId>& tables,
                                         const std::vector<bool>& low) {
  const std::vector<bool> movers = slots_of_moved_tables(graph, map, tables, low);
  if (std::ranges::none_of(movers, [](bool moves) { return moves; })) return low;
  return Placement(graph, policy, map).solve_again(low, movers, tables, constants);
}

}  // namespace mezzo::convert
