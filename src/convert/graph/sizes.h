// How large values are, for the costs of moving them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// An estimate of the number of elements of every value: from the shapes that the file gives and
/// from what operators do with shapes. A dimension that is not known counts as one; a value whose
/// shape is not known is as large as the largest float that its maker reads. At most 2^30. Nothing
/// but costs may depend on it.
std::vector<std::int64_t> estimated_sizes(const Graph&);

/// The shapes behind these sizes. Shapes that the file states are believed.
std::vector<std::optional<std::vector<std::int64_t>>> known_shapes(const Graph&);

}  // namespace mezzo::convert
