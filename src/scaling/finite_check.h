// Unscaling gradients and looking for infinities and NaNs, in place, over lists of any floating
// type.
#pragma once

#include "core/torch.h"

namespace mezzo::scaling {

/// Multiplies every tensor by `inv_scale` and sets `found_inf` to 1 if a value is not finite;
/// never clears it.
///
/// The tensors may mix float, double, half, bfloat16 and complex, devices, layouts (sparse COO: its
/// values; half values that overflow only when duplicates are added count as well) and sizes, zero
/// included. With an `inv_scale` of exactly 1 no value changes. `inv_scale` (float or double) and
/// `found_inf` (float) have one element and are on one device; float and low-precision tensors are
/// multiplied by `inv_scale` as float holds it, double ones by all of it. Non-finite values are
/// left non-finite. A tensor that is listed twice is multiplied twice. Records nothing for
/// autograd. Throws ConfigError for another layout, before anything is changed.
void unscale_and_check(at::TensorList tensors, const at::Tensor& inv_scale, at::Tensor& found_inf);

/// As above, without the check.
void unscale(at::TensorList tensors, const at::Tensor& inv_scale);

/// Sets `found_inf` to 1 if a value of these tensors is not finite; never clears it. The same
/// tensors as `unscale_and_check` takes, which are read once and stay as they are.
void check_finite(at::TensorList tensors, at::Tensor& found_inf);

/// The place of the first tensor that holds a value that is not finite; the list's size if none
/// does. Reads the device.
std::size_t first_nonfinite(at::TensorList tensors);

}  // namespace mezzo::scaling
