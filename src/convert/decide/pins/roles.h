// The purpose of a constant, by the operator that reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/graph/constants.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Is it an operator that computes element by element: a reader of factors, masks and bounds?
bool is_arithmetic(const Node&);

/// A bound of Clip that becomes infinite on its own side bounds nothing before and after.
bool is_open_bound(const Node&, int index, const std::vector<double>& values);

/// A term of a sum of products: rounding it costs no more than rounding that sum does,
/// however small its values are.
bool is_bias(const Graph&, const Node&, int index, std::uint64_t count, Element low);

/// Is it, to this reader, a weight, a statistic or a table of them? An addend that reaches below
/// the low type's range, as masks do, is none: a sum with the lowest number would be infinite.
bool is_weight(const Graph&, Constants&, ValueId constant, const Node&, int index, Element low);

/// Is a single number that this input reads there to keep a divisor, a root's or a logarithm's
/// operand from zero?
bool is_epsilon(const Graph&, std::uint64_t count, const Node&, int index);

/// As above, for a lower bound that stands in an attribute of Clip, where it is below the smallest
/// normal value.
bool is_tiny_bound(const Graph&, const Node& clip, double bound, Element low);

/// Does what the node makes become a divisor, or the operand of a root, a logarithm or a negative
/// power, with nothing but moving between?
bool guards(const Graph&, const Node&);

}  // namespace mezzo::convert
