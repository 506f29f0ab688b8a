// The autograd node between a weight and its low-precision copy.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>

#include "casting/shadow_gate.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Takes the gradient of the copy back to the weight: undoes the transposition, rounds it to the
/// low type as a computation in that type would have, and gives it the weight's type. Closes the
/// copy's gate. Saves nothing, so that one node serves every use and iteration.
class ShadowNode final : public torch::autograd::Node {
 public:
  struct Way {
    at::ScalarType leaf;  // the type that the gradient leaves with
    at::ScalarType low;   // the type that it is rounded to
    bool transposed;
  };

  /// @param edge  where the gradient goes: the weight's accumulator, or the history of a view of
  /// the weight
  ShadowNode(torch::autograd::Edge edge, Way way, std::shared_ptr<ShadowGate> gate);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "MezzoWeightCast"; }

 private:
  Way way_;
  std::shared_ptr<ShadowGate> gate_;
};

/// The edge to a new node, which takes the gradient of `copy` back to a weight or its view.
torch::autograd::Edge shadow_edge(const at::Tensor& weight, ShadowNode::Way way,
                                  std::shared_ptr<ShadowGate> gate, const at::Tensor& copy);

}  // namespace mezzo::casting
