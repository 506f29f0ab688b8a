#include "convert/names.h"

#include "convert/concat.h"

namespace mezzo::convert {

Names::Names(const Graph& graph, ScopeId root) {
  add(graph, root);
}

void Names::add(const Graph& graph, ScopeId id) {
  const Scope& scope = graph.scope(id);
  for (const auto& [name, value] : scope.names) taken_.emplace(name);
  for (const NodeId node : scope.nodes) {
    taken_.emplace(graph.node(node).name);
    for (const Body& body : graph.node(node).bodies) add(graph, body.scope);
  }
}

std::string Names::take(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !taken_.insert(name).second; ++i) name = concat({wanted, "_", std::to_string(i)});
  return name;
}

}  // namespace mezzo::convert
