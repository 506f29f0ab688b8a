// The values of a tensor in short. Everything here runs inside Unobserved.
#pragma once

#include "core/torch.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

/// The numbers of a tensor that are not finite.
struct Finiteness {
  bool nan = false;
  bool inf = false;
  bool finite() const noexcept { return !nan && !inf; }
};

/// Takes any type, device and layout; integers are finite.
Finiteness finiteness_of(const at::Tensor& tensor);

/// The same in full.
TensorRange range_of(const at::Tensor& tensor);

/// The same, and all values other than infinities are zero: a mask that is added to scores.
bool is_additive_mask(const at::Tensor& tensor);

}  // namespace mezzo::insight
