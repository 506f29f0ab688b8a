// The kernels' list operations over lists of tensors, checked. Tensors may be float, half, bfloat16
// or double, mixed, and laid out in any way; what is not dense goes through a dense copy. `where`
// names the caller in errors, which name the tensor by its place in the list.
//
// All tensors of a call on one device that has kernels of ours: those (on CUDA the result is waited
// for). Else LibTorch's operators do the work (list_operators.h).
#pragma once

#include <optional>
#include <vector>

#include "core/torch.h"
#include "kernels/multi_tensor.h"

namespace mezzo::bridge {

/// Is every element finite? Reads each byte once, changes nothing.
bool all_finite(std::string_view where, at::TensorList);

/// The norm of all elements together, in double; `per_tensor`, if given, gets each tensor's.
double norm(std::string_view where, at::TensorList, kernels::Norm,
            std::vector<double>* per_tensor = nullptr);

/// out[i] = in[i] * factor; all results finite in the output's type? Lists of equal length and
/// sizes; out[i] may be in[i]. Overlaps among the outputs are an error.
bool scale(std::string_view where, at::TensorList in, at::TensorList out, double factor);

/// out[i] = a * x[i] + b * y[i], likewise.
bool axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b);

/// out[i] = in[i], converted.
void copy(std::string_view where, at::TensorList in, at::TensorList out);

}  // namespace mezzo::bridge
