// Shapes of operators' results, as far as they follow from shapes, attributes and constants.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

using Dims = std::vector<std::int64_t>;
inline constexpr std::int64_t kUnknownDim = -1;

/// The shapes that are known so far, per value.
using KnownShapes = std::vector<std::optional<Dims>>;

/// The shape of output `output`, which may have unknown dimensions; nothing if it does not
/// follow from what is known. Nodes with bodies and calls of functions are none of its business.
std::optional<Dims> output_shape(const Graph&, const Node&, std::size_t output, const KnownShapes&);

/// The shape of operands of these shapes together, ONNX's broadcasting (numpy's). Shapes that do
/// not fit give what fits.
Dims broadcast(const Dims&, const Dims&);

}  // namespace mezzo::convert
