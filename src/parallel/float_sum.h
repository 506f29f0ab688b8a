// The sum of what the ranks gave, in float, with one rounding at the end.
#pragma once

#include <span>

#include "core/torch.h"

namespace mezzo::parallel {

/// out = factor * (rows[0] + rows[1] + ...), added in this order in float and rounded once to out's
/// type. Rows of one type and `out` have n elements each, of half, bfloat16 or float; contiguous,
/// on one device. `out` may be the memory of a row. The same bits on every processor.
void sum_in_float(std::span<const at::Tensor> rows, const at::Tensor& out, double factor);

/// As above, for the rows of a contiguous tensor [ranks, n].
void sum_in_float(const at::Tensor& all, const at::Tensor& out, double factor);

}  // namespace mezzo::parallel
