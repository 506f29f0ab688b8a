// LibTorch's fused steps for parameters on a CUDA device whose kernels of ours are missing or were
// refused.
#pragma once

#include <c10/util/FunctionRef.h>

#include <vector>

#include "optim/step_work.h"

namespace mezzo::optim {

/// Parameters that one call steps: of one device, type and set of numbers.
struct LibraryList {
  std::size_t row = 0;  // of the first; its `scalars` are those of all
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;                // unscaled, of the parameters' types
  std::vector<std::vector<at::Tensor>> states;  // one list for each state

  /// The counter that `_fused_` operators read, one for each parameter.
  std::vector<at::Tensor> steps(std::int64_t step) const;
};

/// Steps those of `work.elsewhere` that a `_fused_` operator of LibTorch takes: float or double,
/// dense, on a CUDA device, of groups for which `takes(row)` holds. `states(row)` are the tensors
/// of a row, `step` makes the call. Low copies are written as well. Returns what is left, for
/// operators one by one.
std::vector<Elsewhere> step_by_library(
    const StepWork& work, c10::function_ref<bool(std::size_t row)> takes,
    c10::function_ref<std::vector<at::Tensor>(std::size_t row)> states,
    c10::function_ref<void(const LibraryList&)> step);

}  // namespace mezzo::optim
