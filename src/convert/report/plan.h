// Plans and graphs: which belongs to which.
#pragma once

#include <string>
#include <vector>

#include "convert/graph/graph.h"
#include "convert/report/json.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// A hash of operators, names and connections; weights, and the order of nodes in the file, do not
/// count.
std::string structure_of(const Graph&);

Json to_json_list(const std::vector<Decision>&);

}  // namespace mezzo::convert
