#include "casting/cast.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/to.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "casting/counts.h"
#include "casting/gradient_sums.h"
#include "casting/rounding.h"
#include "casting/row.h"
#include "casting/scope.h"
#include "casting/shadow_cache.h"
#include "casting/weight_shadows.h"
#include "core/autograd_node.h"

namespace mezzo::casting {
namespace {

/// Takes the gradient of a sparse tensor's copy back to it. The gradient may be dense, and
/// LibTorch's own cast would ask it for the tensor's layout, which is an error.
class SparseCastNode final : public torch::autograd::Node {
 public:
  SparseCastNode(torch::autograd::edge_list edges, at::ScalarType type)
      : Node(std::move(edges)), type_(type) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {gradients[0].to(type_)};
  }
  std::string name() const override { return "MezzoSparseCast"; }

 private:
  at::ScalarType type_;
};

at::Tensor sparse_cast(const at::Tensor& tensor, at::ScalarType to) {
  if (!tensor.requires_grad() || !at::GradMode::is_enabled()) return tensor.to(to);
  at::Tensor result;
  {
    const at::NoGradGuard no_grad;
    result = tensor.to(to);
  }
  const auto node =
      make_node<SparseCastNode>(torch::autograd::collect_next_edges(tensor), tensor.scalar_type());
  torch::autograd::impl::set_gradient_edge(result, {node, node->add_input_metadata(result)});
  return result;
}

}  // namespace

at::Tensor converted(const at::Tensor& tensor, at::ScalarType to) {
  return tensor.layout() == at::kStrided ? tensor.to(to) : sparse_cast(tensor, to);
}

C10_NOINLINE at::Tensor Casting::cast(const at::Tensor& tensor) {
  const bool emulate = decision_.plan == Plan::kEmulate;
  const at::ScalarType to = decision_.plan == Plan::kInFloat ? at::kFloat : decision_.target;
  if (frame_.listener != nullptr) (*frame_.listener)(row_.name(), tensor.scalar_type(), to);
  at::Tensor result;
  if (to != at::kFloat && frame_.keeps_weights) {
    const ShadowKind kind{to, emulate};
    result = WeightShadows::global().use(tensor, kind, frame_.shadows_for(decision_));
  }
  if (!result.defined()) {
    count_activation_cast();
    const bool rounds = emulate && tensor.layout() == at::kStrided;
    result = rounds ? rounded(tensor, to) : converted(tensor, to);
    // A model sees to it where its outputs leave.
    if (to == at::kFloat && frame_.opened_by == OpenedBy::kProgram) add_up_in_float_behind(result);
  }
  same_keys_ = same_keys_ && result.key_set() == tensor.key_set();
  return result;
}

at::Tensor Casting::apply(const at::Tensor& tensor) {
  using Reference = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  const ShadowCache* const shadows = frame_.shadows_for(decision_);
  c10::TensorImpl* const copy = shadows != nullptr ? shadows->copy_of(tensor) : nullptr;
  return copy != nullptr ? at::Tensor(Reference::reclaim(copy)) : cast(tensor);
}

}  // namespace mezzo::casting
