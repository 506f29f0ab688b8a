// Whether values that are small on the samples may be stored in 16 bits all the same.
#pragma once

#include <cstddef>

#include "convert/decide/decide.h"
#include "convert/judge/metrics.h"

namespace mezzo::convert {

/// `ranges` without the values that are never zero and below least_magnitude().
ValueRanges without_small(const ValueRanges& ranges, Element low);

/// How many operators that gain from 16 bits get them.
std::size_t low_products(const Graph&, const ConvertPolicy&, const Decisions&);

/// Is hardly anything of the outputs lost, measured by `accepted`, the largest error that would do?
/// Each may differ by a quarter of that, and must point where it pointed: an output that is small
/// itself would otherwise be allowed to vanish.
bool hardly_differ(const std::vector<OutputError>& outputs, double accepted);

}  // namespace mezzo::convert
