// One call of an overload with the types of its floating tensors chosen, forward and backward.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "casting/scope.h"
#include "casting/sweep/drawing.h"

namespace mezzo::casting::sweep {

/// The type of the i-th floating tensor of a call.
using Types = std::function<at::ScalarType(std::size_t)>;

struct Outcome {
  std::string error;  // empty: it ran
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> gradients;  // of the floating tensors; undefined where there is none
};

std::size_t count_floats(const Stack& stack);

/// The arguments with their tensors there.
Stack on_device(const Stack& stack, at::Device device);

/// The arguments with the values that they have in these types, all in float.
Stack rounded_to(const Stack& stack, const Types& types);

/// Calls the overload in a scope, or outside of all for an empty policy; the backward pass runs
/// outside. The arguments stay as they are.
Outcome call(const c10::OperatorHandle& op, const Stack& stack, const Types& types,
             bool with_gradients, const std::optional<Policy>& policy = {},
             Mode mode = Mode::kOperators);

/// Empty if the results that are float, and then all gradients of float arguments, are the
/// reference's up to float's rounding; else what differs.
std::string difference(const Outcome& outcome, const Outcome& reference);

/// Empty unless a value, or a value of a gradient, is NaN or infinite where the reference is finite
/// and far inside the low type's range; else which.
std::string lost(const Outcome& outcome, const Outcome& reference);

}  // namespace mezzo::casting::sweep
