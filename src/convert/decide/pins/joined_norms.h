// Layer norms in pieces, of which an engine makes one operator before it runs them.
#pragma once

#include "convert/graph/constants.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {

struct SlotMap;

/// x, where the node computes x - mean(x), the beginning of a normalisation in pieces; else kNone.
/// x is what is left when copies, and calls of functions, are passed.
ValueId centred_by(const Graph&, const Constants&, const Node&);

/// Decides them so that ONNX Runtime joins them rightly, or not at all.
void pin_joined_norms(const Graph&, const Constants&, SlotMap&);

}  // namespace mezzo::convert
