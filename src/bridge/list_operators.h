// The list operations by LibTorch's operators, for devices that have no kernels of ours. The same
// meaning as in multi_tensor.h, which calls these; lists are checked there.
#pragma once

#include <vector>

#include "core/torch.h"
#include "kernels/multi_tensor.h"

namespace mezzo::bridge::by_operators {

bool all_finite(at::TensorList tensors);

double norm(at::TensorList tensors, kernels::Norm which, std::vector<double>* per_tensor);

bool scale(at::TensorList in, at::TensorList out, double factor);

bool axpby(at::TensorList x, at::TensorList y, at::TensorList out, double a, double b);
bool axpby(at::TensorList x, at::TensorList y, at::TensorList out, const std::vector<double>& a,
           const std::vector<double>& b);

void copy(at::TensorList in, at::TensorList out);

}  // namespace mezzo::bridge::by_operators
