// The strict checker: types, arities and attributes of every node in every scope against the
// schemas.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// One thing that is wrong. `what` names the node or value. `key` says where it is and of which
/// kind, without types and operators: it is the same before and after a conversion.
struct Finding {
  std::string what, key;
  bool operator==(const Finding&) const = default;
};

/// Names that a conversion gave to values, with those that they had before.
using OldNames = std::map<std::string, std::string, std::less<>>;

/// Everything that is wrong, in file order. Nodes of unknown domains are passed over. Keys have the
/// old names.
std::vector<Finding> check_graph(const Graph&, const OldNames& = {});

}  // namespace mezzo::convert
