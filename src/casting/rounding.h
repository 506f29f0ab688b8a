// Values of a low type in float storage: what emulated operators compute with.
#pragma once

#include "core/torch.h"

namespace mezzo::casting {

/// The tensor's values rounded to the low type, as float32. A tensor that has the low type already
/// only widens. Recorded by autograd, so that its gradient is rounded as well.
at::Tensor rounded(const at::Tensor& tensor, at::ScalarType low);

}  // namespace mezzo::casting
