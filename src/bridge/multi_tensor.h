// The kernels' list operations over lists of tensors, checked. Tensors may be float, half, bfloat16
// or double, mixed, and laid out in any way; what is not dense goes through a dense copy. `where`
// names the caller in errors, which name the tensor by its place in the list.
//
// All tensors of a call on one device that has kernels of ours: those. Else LibTorch's operators do
// the work (list_operators.h). An answer that is a tensor lies on the list's device, so that
// nothing waits for it; one that is a number or a flag of C++ does.
#pragma once

#include <optional>
#include <vector>

#include "core/torch.h"
#include "kernels/multi_tensor.h"

namespace mezzo::bridge {

/// Where the tensors are: the first one's device; the CPU for an empty list.
at::Device device_of_list(at::TensorList);

/// Is every element finite? Reads each byte once, changes nothing.
bool all_finite(std::string_view where, at::TensorList);

/// The norm of all elements together, in double; `per_tensor`, if given, gets each tensor's.
double norm(std::string_view where, at::TensorList, kernels::Norm,
            std::vector<double>* per_tensor = nullptr);

/// The norm as a tensor of one double; `per_tensor`, if given, becomes a vector of doubles.
at::Tensor norm_there(std::string_view where, at::TensorList, kernels::Norm,
                      at::Tensor* per_tensor = nullptr);

/// out[i] = in[i] * factor. `found_inf`, one element, becomes 1 if a result is not finite in the
/// output's type. Lists of equal length and sizes; out[i] may be in[i]. Overlaps among the outputs
/// are an error.
void scale(std::string_view where, at::TensorList in, at::TensorList out, double factor,
           at::Tensor& found_inf);
/// As above: are all results finite?
bool scale(std::string_view where, at::TensorList in, at::TensorList out, double factor);
/// In place, by a double on any device; a factor of 1 leaves everything alone.
void scale_by(std::string_view where, at::TensorList, const at::Tensor& factor);

/// out[i] = a * x[i] + b * y[i], likewise.
void axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b, at::Tensor& found_inf);
bool axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b);
/// out[i] = a[i] * x[i] + b[i] * y[i], by vectors of doubles on any device; nothing is checked.
void axpby_each(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out,
                const at::Tensor& a, const at::Tensor& b);

/// out[i] = in[i], converted.
void copy(std::string_view where, at::TensorList in, at::TensorList out);
/// As above, on a device that has the CUDA library's kernels, where `flag` (one float there) is not
/// zero: nobody waits for it.
void copy_if(std::string_view where, at::TensorList in, at::TensorList out, const at::Tensor& flag);

}  // namespace mezzo::bridge
