// The transpose of a weight as C++'s nn::Linear takes one at each call: nobody sees its gradient.
#pragma once

#include <torch/csrc/autograd/generated/Functions.h>

#include <typeinfo>

#include "core/torch.h"

namespace mezzo::casting {

/// May a gradient go straight to the accumulator, transposed, in place of through this node? Not
/// past hooks, nor past the backward of a function that the program wrote. Only for nodes of
/// two-dimensional tensors.
C10_ALWAYS_INLINE bool is_plain_transpose(torch::autograd::Node& node,
                                          const torch::autograd::Node* accumulator) {
  using torch::autograd::generated::TBackward0;
  using torch::autograd::generated::TransposeBackward0;
  if (typeid(node) != typeid(TBackward0)) [[unlikely]] {
    if (typeid(node) != typeid(TransposeBackward0)) return false;
    // Dimensions -2 and 0 are the same, and so are -1 and 1.
    const auto& transpose = static_cast<const TransposeBackward0&>(node);
    if (((transpose.dim0 ^ transpose.dim1) & 1) == 0) return false;
  }
  return node.next_edge(0).function.get() == accumulator && node.tensor_pre_hooks().empty() &&
         node.retains_grad_hooks().empty() && node.post_hooks().empty() && node.pre_hooks().empty();
}

}  // namespace mezzo::casting
