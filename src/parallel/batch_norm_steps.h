// Batch norm of this rank's batch, in the steps between which ranks exchange sums: by our kernels
// on CPUs and on CUDA devices that have them, by LibTorch's operators elsewhere.
#pragma once

#include <utility>

#include "core/torch.h"

namespace mezzo::parallel {

/// The batch in one of the layouts that the steps take: contiguous, or channels (dimension 1)
/// innermost; itself where it already is.
at::Tensor laid_out(const at::Tensor& x);

/// The inputs of all steps. Channels are dimension 1; one number a channel is double, on x's
/// device.
struct BatchStep {
  at::Tensor x;  // laid out
  at::Tensor mean, rstd;
  at::Tensor weight, bias;  // may be undefined
  bool relu = false;
};

/// Row 0: the means, row 1: the sums of squared deviations; [2, C], zeros for an empty batch.
at::Tensor batch_moments(const at::Tensor& x);

/// (x - mean) * rstd * weight + bias + z, and ReLU; x's type and layout. `z` may be undefined.
at::Tensor batch_normalised(const BatchStep&, const at::Tensor& z);

/// Row 0: the sums of dy, row 1: those of dy * (x - mean); [2, C]. `y` is the result, read with
/// relu.
at::Tensor batch_gradient_sums(const BatchStep&, const at::Tensor& dy, const at::Tensor& y);

/// dx, and the gradient of z; whatever is not wanted is undefined. `means` are the sums over all
/// ranks divided by the count, or undefined if the statistics did not depend on x.
std::pair<at::Tensor, at::Tensor> batch_gradients(const BatchStep&, const at::Tensor& dy,
                                                  const at::Tensor& y, const at::Tensor& means,
                                                  bool wants_dx, bool wants_dz);

/// As above, by operators on any device.
namespace by_operators {
at::Tensor batch_moments(const at::Tensor& x);
at::Tensor batch_normalised(const BatchStep&, const at::Tensor& z);
at::Tensor batch_gradient_sums(const BatchStep&, const at::Tensor& dy, const at::Tensor& y);
std::pair<at::Tensor, at::Tensor> batch_gradients(const BatchStep&, const at::Tensor& dy,
                                                  const at::Tensor& y, const at::Tensor& means,
                                                  bool wants_dx, bool wants_dz);
}  // namespace by_operators

}  // namespace mezzo::parallel
