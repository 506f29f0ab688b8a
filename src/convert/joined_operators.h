// Operators that an engine makes one of before it runs them.
#pragma once

#include "convert/constants.h"
#include "convert/graph.h"

namespace mezzo::convert {

/// What the value is a copy of: where the operators behind it that change nothing begin (Identity,
/// Dropout, Cast, Reshape to the same shape, times 1).
ValueId before_copies(const Graph&, const Constants&, ValueId);

/// x, where the node computes x - mean(x), the beginning of a normalisation in pieces; else kNone.
ValueId centred_by(const Graph&, const Constants&, const Node&);

}  // namespace mezzo::convert
