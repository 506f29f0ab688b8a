// Operations over lists of tensors as one: scaling, sums, norms, clipping.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::optim {

/// Scales the gradients of these parameters in place so that their norm, over all together, is at
/// most `max_norm`; returns the norm before. `norm_type` is above 0, infinity for the largest
/// magnitude. A gradient that is listed twice counts once; gradients that overlap, themselves or
/// each other, are a ConfigError, clipped or not. A norm that is not finite is an Error if asked
/// for, before anything changes.
MEZZO_API at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm,
                                     double norm_type = 2.0, bool error_if_nonfinite = false);

/// out[i] = in[i] * scale, any floating-point types. `found_inf` (one element, int or float)
/// becomes 1 if a result is not finite in its type, and is never cleared; everything is written
/// anyway. Lists of equal length and sizes; out[i] may be in[i], but overlap nothing else. Nothing
/// waits for a CUDA device that has kernels of ours, unless the flag is on the host; so it is
/// below, with clip_grad_norm_ (unless it may throw) and with LARC.
MEZZO_API void multi_tensor_scale(at::TensorList in, at::TensorList out, double scale,
                                  at::Tensor& found_inf);

/// out[i] = a * x[i] + b * y[i], likewise.
MEZZO_API void multi_tensor_axpby(at::TensorList x, at::TensorList y, at::TensorList out, double a,
                                  double b, at::Tensor& found_inf);

/// The 2-norm of all elements together, a float scalar on the tensors' device, and if asked for a
/// vector of each tensor's; otherwise the second is undefined. Sums are double: squares of finite
/// float elements overflow nowhere, and a norm is infinite only above float's largest number.
MEZZO_API std::pair<at::Tensor, at::Tensor> multi_tensor_l2norm(at::TensorList tensors,
                                                                bool per_tensor = false);

}  // namespace mezzo::optim
