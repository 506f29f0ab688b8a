// The strict checker: types, arities and attributes of every node in every scope against the
// schemas.
#pragma once

#include <string>
#include <vector>

#include "convert/graph.h"

namespace mezzo::convert {

/// One thing that is wrong. `what` names the node or value.
struct Finding {
  std::string what;
  bool operator==(const Finding&) const = default;
};

/// Everything that is wrong, in file order. Nodes of unknown domains are passed over.
std::vector<Finding> check_graph(const Graph&);

}  // namespace mezzo::convert
