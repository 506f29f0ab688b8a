// Convolutions of the built-in evaluator, for those that have float inputs and those that have not.
#pragma once

#include <optional>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {

/// `x` convolved with `weight` by the window that the call's attributes describe. Padding is zero.
at::Tensor convolved(const TorchCall&, const at::Tensor& x, const at::Tensor& weight,
                     const std::optional<at::Tensor>& bias);

}  // namespace mezzo::convert
