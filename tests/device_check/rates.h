// Rates of the device, which figures are shares of, and the operations of a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "device_check/device.h"

namespace mezzo::device_check {

/// Seconds a call: the least of several turns, each long enough for the clock.
double seconds_of(const Device& device, const std::function<void()>& work, double turn = 0.05,
                  int turns = 5);
/// Bytes a second, read and written together, of a copy that no cache holds.
double copy_rate(const Device& device);
/// Operations a second of a large product of matrices.
double matrix_rate(const Device& device, at::ScalarType type);
/// Additions and multiplications of the convolutions, products and attentions in `forward`.
double count_operations(const std::function<void()>& forward);

}  // namespace mezzo::device_check
