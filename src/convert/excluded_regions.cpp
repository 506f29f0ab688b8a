// Regions that the caller keeps float32: what lies on a way from one tensor to another.
#include <algorithm>

#include "convert/decide.h"

namespace mezzo::convert {
namespace {

// Ways of values through nodes, into bodies and functions, and out of them.
class Ways {
 public:
  explicit Ways(const Graph& graph) : graph_(graph) {}

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

  static bool is_hollow(const Node& node) { return !node.bodies.empty() || node.instance != kNone; }

 private:
  template <typename Visit>
  void step(ValueId id, const Visit& visit) const {
    for (const Use& use : graph_.value(id).uses) {
      if (use.node == kNone) {
        const NodeId owner = graph_.scope(use.scope).owner;
        if (owner != kNone) std::ranges::for_each(graph_.node(owner).outputs, visit);
      } else if (const Node& node = graph_.node(use.node); is_hollow(node)) {
        inside(node, [&](const Scope& scope) { std::ranges::for_each(scope.inputs, visit); });
      } else {
        std::ranges::for_each(node.outputs, visit);
      }
    }
  }

  template <typename Visit>
  void step_back(ValueId id, const Visit& visit) const {
    const Value& value = graph_.value(id);
    if (value.is_scope_input && graph_.scope(value.scope).owner != kNone)
      std::ranges::for_each(graph_.node(graph_.scope(value.scope).owner).inputs, visit);
    if (value.producer == kNone) return;
    const Node& node = graph_.node(value.producer);
    if (is_hollow(node)) {
      inside(node, [&](const Scope& scope) { std::ranges::for_each(scope.outputs, visit); });
    } else {
      std::ranges::for_each(node.inputs, visit);
    }
  }

  template <typename Visit>
  void inside(const Node& node, const Visit& visit) const {
    for (const Body& body : node.bodies) visit(graph_.scope(body.scope));
    if (node.instance != kNone) visit(graph_.scope(node.instance));
  }

  const Graph& graph_;
};

}  // namespace

std::vector<NodeId> nodes_between(const Graph& graph, const NamePattern& from,
                                  const NamePattern& to) {
  const Ways ways(graph);
  const std::vector<bool> behind = ways.reached(from, true);
  const std::vector<bool> before = ways.reached(to, false);
  const auto any = [](const std::vector<ValueId>& ids, const std::vector<bool>& set) {
    return std::ranges::any_of(
        ids, [&](ValueId id) { return id != kNone && set[static_cast<std::size_t>(id)]; });
  };
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!Ways::is_hollow(node) && any(node.inputs, behind) && any(node.outputs, before))
      nodes.push_back(static_cast<NodeId>(n));
  }
  return nodes;
}

}  // namespace mezzo::convert
