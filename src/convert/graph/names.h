// New names that collide with none in any scope.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Names of values and nodes of one graph or function, bodies included.
class Names {
 public:
  /// Takes all names below this scope.
  Names(const Graph&, ScopeId root);
  /// Takes all names in a message of a function. Throws Error if graphs are nested too deeply.
  explicit Names(Message& function);
  /// `wanted`, or `wanted_1`, `wanted_2`, ...: the first that is free; it is taken from now on.
  std::string take(const std::string& wanted);

 private:
  void add(const Graph&, ScopeId);
  void add_nodes(Message& graph_or_function, std::uint32_t number, int depth);
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> last_;  // numbers behind names
};

}  // namespace mezzo::convert
