// Values of a low type in float storage: what emulated operators compute with.
#pragma once

#include "core/torch.h"

namespace mezzo::casting {

/// The tensor's values rounded to the low type, as float32. A tensor that has the low type already
/// only widens. Recorded by autograd, so that its gradient is rounded as well.
at::Tensor rounded(const at::Tensor& tensor, at::ScalarType low);

/// Writes those values to `out`, a float32 tensor of the same shape that may be `in` itself; not
/// recorded, but `out` counts as changed. One pass over memory where both lie densely and alike on
/// the CPU.
void round_into(const at::Tensor& out, const at::Tensor& in, at::ScalarType low);

/// The same values of a float32 gradient, recorded where a graph of the backward pass is wanted.
/// They take its own memory where this reference is the only one to it.
at::Tensor rounded_gradient(const at::Tensor& gradient, at::ScalarType low);

}  // namespace mezzo::casting
