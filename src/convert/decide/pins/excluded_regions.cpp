// Regions that the caller keeps float32: what lies on a way from one tensor to another.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/body_ways.h"
#include "convert/graph/walk.h"

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

}  // namespace mezzo::convert
