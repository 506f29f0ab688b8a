// One call of a norm: its tensors, checked, and the shape they make.
#pragma once

#include <algorithm>
#include <limits>

#include "core/torch.h"
#include "kernels/norms.h"

namespace mezzo::nn {

struct NormCall {
  const char* where = "";
  bool rms = false;
  double eps = 1e-5;
  bool memory_efficient = false;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// The smallest divisor of a result whose weight is taken off again: never zero, which
/// would make nothing of nothing.
inline double smallest_weight(const NormCall& call) {
  return std::max(call.eps, static_cast<double>(std::numeric_limits<float>::min()));
}

/// Checks sizes and types and fills rows and columns. Throws ConfigError.
void check_norm(NormCall& call, const at::Tensor& x, const at::Tensor& residual,
                at::IntArrayRef normalized_shape, const at::Tensor& weight, const at::Tensor& bias);

/// The type of statistics and of arithmetic: double where anything is.
at::ScalarType statistics_type(const at::Tensor& x, const at::Tensor& residual,
                               const at::Tensor& weight, const at::Tensor& bias);

/// Made of LibTorch's operators, differentiable as often as one likes. Without residual the second
/// is undefined.
std::pair<at::Tensor, at::Tensor> norm_of_operators(const NormCall&, const at::Tensor& x,
                                                    const at::Tensor& residual,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias);

/// The tensors that a norm's backward needs.
struct NormSaved {
  at::Tensor x;  // what was normalised, or the result with memory_efficient
  at::Tensor weight, bias;
  at::Tensor mean;  // undefined for RMS and with memory_efficient
  at::Tensor rstd;
};
struct NormGradients {
  at::Tensor dx, dweight, dbias;
};

/// By the kernels: dx has the type of `saved.x`; the others the statistics' type. `dsum` may be
/// undefined.
NormGradients norm_backward_by_kernels(const NormCall&, const NormSaved&, const at::Tensor& dy,
                                       const at::Tensor& dsum);

/// By differentiable operators. `drstd`: the gradient of rstd, where that is an output; may be
/// undefined.
NormGradients norm_backward_of_operators(const NormCall&, const NormSaved&, const at::Tensor& dy,
                                         const at::Tensor& dsum, const at::Tensor& drstd);

}  // namespace mezzo::nn
