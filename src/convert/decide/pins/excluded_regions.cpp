// Regions that the caller keeps float32: what lies on a way from one tensor to another.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/body_ways.h"

namespace mezzo::convert {
namespace {

// RegionWays of values through nodes, into bodies and functions, and out of them.
class RegionWays {
 public:
  explicit RegionWays(const Graph& graph) : graph_(graph) {}

  // All values that a way leads to from those of that name, or that lead to them.
  std::vector<bool> reached(const NamePattern& name, bool forward) const {
    std::vector<bool> is_reached(graph_.values.size());
    std::vector<ValueId> next;
    const auto visit = [&](ValueId id) {
      if (id == kNone || is_reached[static_cast<std::size_t>(id)]) return;
      is_reached[static_cast<std::size_t>(id)] = true;
      next.push_back(id);
    };
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (name.matches(graph_.values[v].name)) visit(static_cast<ValueId>(v));
    }
    while (!next.empty()) {
      const ValueId id = next.back();
      next.pop_back();
      forward ? step(id, visit) : step_back(id, visit);
    }
    return is_reached;
  }

 private:
  template <typename Visit>
  void step(ValueId id, const Visit& visit) const {
    for (const Use& use : graph_.value(id).uses) {
      const auto at = static_cast<std::size_t>(use.input);
      if (use.node == kNone) {
        std::ranges::for_each(values_after_result(graph_, use.scope, at), visit);
      } else if (const Node& node = graph_.node(use.node); is_hollow(node)) {
        std::ranges::for_each(values_after_input(graph_, node, at), visit);
      } else {
        std::ranges::for_each(node.outputs, visit);
      }
    }
  }

  template <typename Visit>
  void step_back(ValueId id, const Visit& visit) const {
    const Value& value = graph_.value(id);
    const auto at = static_cast<std::size_t>(value.output);
    if (value.is_scope_input)
      std::ranges::for_each(values_before_entry(graph_, value.scope, at), visit);
    if (value.producer == kNone) return;
    const Node& node = graph_.node(value.producer);
    if (is_hollow(node)) {
      std::ranges::for_each(values_before_output(graph_, node, at), visit);
    } else {
      std::ranges::for_each(node.inputs, visit);
    }
  }

  const Graph& graph_;
};

}  // namespace

std::vector<NodeId> nodes_between(const Graph& graph, const NamePattern& from,
                                  const NamePattern& to) {
  const RegionWays ways(graph);
  const std::vector<bool> behind = ways.reached(from, true);
  const std::vector<bool> before = ways.reached(to, false);
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

}  // namespace mezzo::convert
