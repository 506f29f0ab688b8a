// Regions of integer arithmetic: between quantisation and what gives floats again.
#pragma once

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Does the node quantise, give floats from integers, or compute between the two?
bool is_quantised(const Graph&, const Node&);

/// Is the node a DequantizeLinear of weights alone, which products of floats read? Such weights are
/// float weights in small storage.
bool stores_float_weights(const Graph&, const Node&);

}  // namespace mezzo::convert
