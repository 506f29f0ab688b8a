// Operators that change nothing, which engines take out before they look at what is around them.
#pragma once

#include <vector>

#include "convert/graph/constants.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Does the node give its first input as it is (Identity, Dropout, Cast between floats, times 1)?
/// An Expand, a Reshape or a Slice whose shapes the file does not give may do so too: they count.
bool may_be_copy(const Graph&, const Constants&, const Node&);

/// The way from a value back to what it may be a copy of.
struct WayBack {
  ValueId origin = kNone;
  std::vector<ValueId> passed;  // with both ends
  bool leaves_body = false;     // a body of If, Loop or Scan reads a value from outside on this way
};

/// The way of a value that is read in a scope. Calls of functions are passed as if their bodies
/// stood in their place.
WayBack way_back(const Graph&, const Constants&, ValueId, ScopeId reader);

/// The value and all that may be copies of it, in functions too.
std::vector<ValueId> copies_of(const Graph&, const Constants&, ValueId);

}  // namespace mezzo::convert
