// Why a constant must not be rounded.
#pragma once

#include <string>
#include <string_view>

#include "convert/graph/constants.h"

namespace mezzo::convert {

/// Why rounding loses such values whoever reads them: they leave the range on either side. Empty:
/// it does not. `what` names them: "constant 'c'".
std::string range_objection(std::string_view what, const ConstantFacts&, Element low);

/// Why rounding this constant would change what input `index` of `node` computes; empty: it would
/// not, or what is allowed mends it. Follows the constant's role: weight, statistic, epsilon, mask
/// sentinel, clip bound.
std::string objection(const Graph&, Constants&, ValueId constant, const Node& node, int index,
                      Element low, const Allowed&);

}  // namespace mezzo::convert
