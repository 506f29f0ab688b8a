// The context that pins look at and act on, and the list of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/decide/decide.h"
#include "convert/graph/constants.h"

namespace mezzo::convert {

/// A graph, what is known about it, and the slots to pin.
struct PinContext {
  const Graph& graph;
  const ConvertPolicy& policy;
  const Constants& constants;
  SlotMap& map;

  Element low() const { return policy.low(); }
  NodeId id_of(const Node& node) const { return static_cast<NodeId>(&node - graph.nodes.data()); }
  Slot native(ValueId id) const { return map.native[static_cast<std::size_t>(id)]; }
  bool is_constant(ValueId id) const {
    return id != kNone && map.is_constant[static_cast<std::size_t>(id)];
  }
  /// A float value that something computes or a caller gives.
  bool is_open(ValueId id) const {
    return id != kNone && !is_constant(id) && native(id) != kNoSlot;
  }
  bool is_standard(const Node& node) const { return node.domain.empty() && node.schema != nullptr; }
  /// The operator of the standard that makes a value; null: there is none.
  const Node* maker(ValueId id) const {
    const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
    if (producer == kNone || !is_standard(graph.node(producer))) return nullptr;
    return &graph.node(producer);
  }

  void keep_node(NodeId id, std::string_view why, Level level = Level::kPattern) const {
    for (const Slot slot : map.variables[static_cast<std::size_t>(id)])
      map.slots.pin(slot, Label::kHigh, level, std::string(why));
  }
  void keep_value(ValueId id, std::string_view why, Level level = Level::kPattern) const {
    map.slots.pin(native(id), Label::kHigh, level, std::string(why));
  }
};

/// A reason to keep something float32, whatever the weights are.
struct PinRule {
  std::string_view name;      // as reports and Options::without_pins have it
  std::string_view concerns;  // one clause
  void (*pin)(const PinContext&) = nullptr;
  bool wants_settled = false;  // it reads pins: the slots are settled before
};

/// All of them, in the order in which they pin (decide/pins/).
std::span<const PinRule> pin_rules();

/// The nodes whose weights are frequencies and places: numbers that show every digit. They stay
/// float32 even where only weights are stored low.
std::vector<NodeId> readers_of_positions(const PinContext&);

}  // namespace mezzo::convert
