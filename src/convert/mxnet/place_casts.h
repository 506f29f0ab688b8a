// Where amp_casts land in a graph, and which parameters are stored in 16 bits.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "convert/mxnet/lists.h"

namespace mezzo::convert::mxnet {

/// The caller's words about the variables of a graph.
struct Variables {
  /// Variables that are never stored in another type.
  std::function<bool(const Node&)> is_data;
  /// Types of parameters, by name; they are written to their variables.
  std::map<std::string, std::string, std::less<>> dtypes = {};
  bool cast_optional_params = false;
  /// Given: the only ones that may be stored in 16 bits.
  const std::set<std::string>* storable = nullptr;
};

struct Placed {
  Symbol symbol;
  std::set<std::string> stored_low;
};

Placed place_casts(const Symbol& symbol, const Lists& lists, const Variables& variables);

}  // namespace mezzo::convert::mxnet
