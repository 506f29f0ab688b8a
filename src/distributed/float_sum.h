// The sum of what the ranks gave, in float, with one rounding at the end.
#pragma once

#include "core/torch.h"

namespace mezzo::parallel {

/// out = factor * (all[0] + all[1] + ...), added in this order in float and rounded once to out's
/// type. `all`: [ranks, n], `out`: [n], each half, bfloat16 or float; both contiguous,
/// on one device. The same bits on every processor.
void sum_in_float(const at::Tensor& all, const at::Tensor& out, double factor);

}  // namespace mezzo::parallel
