// The autograd node between a weight and its low-precision copy.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>

#include "core/torch.h"

namespace mezzo::casting {

/// Set by the backward pass when a gradient has gone to the weight; the copy is doubtful from then
/// on.
using GradientFlowed = std::shared_ptr<std::atomic<bool>>;

/// Takes the gradient of the copy back to the weight: undoes the transposition, rounds it to the
/// low type as a computation in that type would have, and gives it the weight's type. Saves
/// nothing, so that one node serves every use and iteration.
class ShadowNode final : public torch::autograd::Node {
 public:
  struct Way {
    at::ScalarType leaf;  // the type that the gradient leaves with
    at::ScalarType low;   // the type that it is rounded to
    bool transposed;
  };

  /// @param edge  where the gradient goes: the weight's accumulator, or the history of a view of
  /// the weight
  ShadowNode(torch::autograd::Edge edge, Way way, GradientFlowed flowed);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "MezzoWeightCast"; }

 private:
  Way way_;
  GradientFlowed flowed_;
};

}  // namespace mezzo::casting
