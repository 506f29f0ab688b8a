// Operators that an engine makes one of before it runs them.
#pragma once

#include "convert/graph.h"

namespace mezzo::convert {

/// What the value is a copy of: where the Identities, Dropouts, Casts and moves to the same place
/// behind it begin.
ValueId before_copies(const Graph&, ValueId);

/// x, where the node computes x - mean(x), the beginning of a normalisation in pieces; else kNone.
ValueId centred_by(const Graph&, const Node&);

}  // namespace mezzo::convert
