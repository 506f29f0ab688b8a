#include "casting/shadow_node.h"

#include <ATen/ops/t.h>
#include <ATen/ops/to.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <utility>

#include "casting/rounding.h"
#include "core/autograd_node.h"

namespace mezzo::casting {

// The highest sequence number makes the engine run it as soon as its gradient is there, as it does
// accumulators. With an ordinary number a node that lives on from earlier iterations would run
// last, and all weight gradients would pile up.
ShadowNode::ShadowNode(torch::autograd::Edge edge, Way way, std::shared_ptr<ShadowGate> gate)
    : Node(UINT64_MAX), way_(way), gate_(std::move(gate)) {
  add_next_edge(std::move(edge));
}

torch::autograd::variable_list ShadowNode::apply(torch::autograd::variable_list&& gradients) {
  gate_->gradient_flowed();
  at::Tensor gradient = std::move(gradients[0]);
  if (!gradient.defined()) return {gradient};
  // Who takes gradients of any type gets this one as it is.
  const torch::autograd::Edge& to = next_edge(0);
  const bool any_type = !to.function->input_metadata(to.input_nr).grad_dtype();
  if (gradient.scalar_type() == at::kFloat) {
    const bool stays_float = !any_type && way_.leaf == at::kFloat;
    gradient = stays_float ? rounded_gradient(gradient, way_.low) : gradient.to(way_.low);
  }
  const at::ScalarType type = any_type ? gradient.scalar_type() : way_.leaf;
  if (way_.transposed) {
    gradient = gradient.t();
    // Contiguous like the weight, or the accumulator would copy it once more.
    return {
        gradient.to(gradient.options().dtype(type), false, false, at::MemoryFormat::Contiguous)};
  }
  return {gradient.to(type)};
}

torch::autograd::Edge shadow_edge(const at::Tensor& weight, ShadowNode::Way way,
                                  std::shared_ptr<ShadowGate> gate, const at::Tensor& copy) {
  auto node =
      make_node<ShadowNode>(torch::autograd::impl::gradient_edge(weight), way, std::move(gate));
  const std::uint32_t output = node->add_input_metadata(copy);
  return {std::move(node), output};
}

}  // namespace mezzo::casting
