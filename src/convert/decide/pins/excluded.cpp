// Values that the caller keeps float32 by name: tensors, inputs of nodes, and regions, which are
// all that lies on a way from one tensor to another.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/body_ways.h"
#include "convert/graph/walk.h"
#include "convert/onnx/concat.h"

namespace mezzo::convert {
namespace {

// All values that a way leads to from those of that name, or that lead to them: through nodes of
// all domains, into bodies and functions, and out of them.
std::vector<bool> reached(const Graph& graph, const NamePattern& name, bool forward) {
  const WalkBounds bounds{.farthest = graph.values.size(), .any_domain = true};
  std::vector<ValueId> named;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (name.matches(graph.values[v].name)) named.push_back(static_cast<ValueId>(v));
  }
  const auto on = [](ValueId, const Use&, const Node&) { return Onward::kAll; };
  const auto back = [](ValueId, const Node*) { return Onward::kAll; };
  std::vector<bool> is_reached(graph.values.size());
  for (const ValueId id :
       forward ? walk_on(graph, named, bounds, on) : walk_back(graph, named, bounds, back))
    is_reached[static_cast<std::size_t>(id)] = true;
  return is_reached;
}

class ValuePins {
 public:
  ValuePins(const Graph& graph, const ConvertPolicy& policy, SlotMap& map)
      : graph_(graph), policy_(policy), map_(map) {}

  ExcludedValues run() {
    for (const NamePattern& pattern : policy_.excluded_tensors()) {
      if (pin_tensors(pattern)) continue;
      result_.warnings.push_back(
          concat({"excluded tensor '", pattern.text(), "' matches no value that may go low"}));
    }
    for (const InputPattern& pattern : policy_.excluded_inputs()) {
      if (pin_inputs(pattern)) continue;
      result_.warnings.push_back(
          concat({"excluded input '", pattern.text, "' matches no input that may go low"}));
    }
    return std::move(result_);
  }

 private:
  bool pin_tensors(const NamePattern& pattern) {
    const std::string why = concat({"excluded as tensor '", pattern.text(), "'"});
    bool is_found = false;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!pattern.matches(graph_.values[v].name)) continue;
      is_found = keep_float(map_.native[v], why) || is_found;
      for (std::size_t u = 0; u < map_.uses[v].size(); ++u)
        is_found = pin_use(graph_.values[v].uses[u], map_.uses[v][u], why) || is_found;
    }
    return is_found;
  }

  bool pin_inputs(const InputPattern& pattern) {
    const std::string why = concat({"excluded as input '", pattern.text, "'"});
    bool is_found = false;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      for (std::size_t u = 0; u < map_.uses[v].size(); ++u) {
        const Use& use = graph_.values[v].uses[u];
        if (use.node == kNone || use.input != pattern.index) continue;
        const Node& node = graph_.node(use.node);
        const bool is_it = pattern.node.text() == node.qualified_name() ||
                           pattern.node.matches(name_of_node(graph_, node));
        if (is_it) is_found = pin_use(use, map_.uses[v][u], why) || is_found;
      }
    }
    return is_found;
  }

  bool pin_use(const Use& use, Slot slot, const std::string& why) {
    if (!keep_float(slot, why)) return false;
    if (use.node != kNone) result_.readers.push_back(use.node);
    return true;
  }

  bool keep_float(Slot slot, const std::string& why) {
    if (slot == kNoSlot) return false;
    map_.slots.pin(slot, Label::kHigh, Level::kName, why);
    return true;
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  SlotMap& map_;
  ExcludedValues result_;
};

}  // namespace

std::vector<NodeId> nodes_between(const Graph& graph, const NamePattern& from,
                                  const NamePattern& to) {
  const std::vector<bool> behind = reached(graph, from, true);
  const std::vector<bool> before = reached(graph, to, false);
  const auto any = [](const std::vector<ValueId>& ids, const std::vector<bool>& set) {
    return std::ranges::any_of(
        ids, [&](ValueId id) { return id != kNone && set[static_cast<std::size_t>(id)]; });
  };
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_hollow(node) && any(node.inputs, behind) && any(node.outputs, before))
      nodes.push_back(static_cast<NodeId>(n));
  }
  return nodes;
}

ExcludedValues pin_excluded_values(const Graph& graph, const ConvertPolicy& policy, SlotMap& map) {
  return ValuePins(graph, policy, map).run();
}

}  // namespace mezzo::convert
