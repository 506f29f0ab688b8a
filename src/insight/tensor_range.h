// The values of a tensor in short. Everything here runs inside Unobserved.
#pragma once

#include <vector>

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

/// As above, in full.
TensorRange range_of(const at::Tensor& tensor);

/// The largest finite magnitude; 0 where no value is finite.
double largest_magnitude(const TensorRange& range);

/// The largest difference of two tensors of one shape over the largest magnitude of the second,
/// where the second is finite; infinite if the first is not finite there.
double relative_error(const at::Tensor& value, const at::Tensor& reference);

/// The worst of such pairs; undefined tensors are left out. With a guard of its own.
double worst_error(const std::vector<at::Tensor>& values,
                   const std::vector<at::Tensor>& references);

/// Not finite, and all values other than infinities are zero: a mask that is added to scores.
bool is_additive_mask(const at::Tensor& tensor);

/// Is every value infinite?
bool is_infinite_all(const at::Tensor& tensor);

bool holds_positive_infinity(const at::Tensor& tensor);

/// Are there elements of its memory that the tensor does not have?
bool is_part_of_memory(const at::Tensor& tensor);

}  // namespace mezzo::insight
