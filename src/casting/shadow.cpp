#include "casting/shadow.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/t.h>
#include <ATen/ops/to.h>
#include <torch/csrc/autograd/variable.h>

#include <thread>
#include <utility>

#include "casting/counts.h"
#include "casting/rounding.h"

namespace mezzo::casting {
namespace {

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

at::Tensor values_for(const at::Tensor& weight, ShadowKind kind) {
  const at::Tensor values = weight.detach();
  return kind.in_float ? rounded(values, kind.low) : values.to(kind.low);
}

bool is_transpose(const at::Tensor& view, const at::Tensor& weight) {
  return weight.dim() == 2 && view.dim() == 2 && view.size(0) == weight.size(1) &&
         view.size(1) == weight.size(0) && view.stride(0) == weight.stride(1) &&
         view.stride(1) == weight.stride(0) && view.storage_offset() == weight.storage_offset();
}

}  // namespace

void Shadow::enter() noexcept {
  while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
}

void Shadow::close() noexcept {
  enter();
  storage_ = nullptr;
  leave();
  // Before the weight is read: a gradient that flows while it is read makes the copy doubtful.
  flowed_->store(false, std::memory_order_release);
}

void Shadow::open(const at::Tensor& weight) {
  invalid_ = false;
  enter();
  type_ = weight.dtype();
  version_ = version_of(weight);
  storage_ = weight.storage().unsafeGetStorageImpl();
  offset_ = weight.storage_offset();
  leave();
}

bool Shadow::fresh(const at::Tensor& weight) const {
  return base_.defined() && storage_ != nullptr && version_ == version_of(weight) &&
         !flowed_->load(std::memory_order_acquire);
}

void Shadow::drop_aliases() {
  for (at::Tensor& alias : aliases_) alias.reset();
}

void Shadow::cast_again(const at::Tensor& weight) {
  const Unrecorded guard;
  const bool changed = base_.defined() && !invalid_ && version_ != version_of(weight);
  close();
  if (changed) {
    base_.copy_(kind_.in_float ? values_for(weight, kind_) : weight);
  } else {
    base_ = values_for(weight, kind_);
    drop_aliases();
  }
  count_weight_casts();
  open(weight);
}

const at::Tensor& Shadow::whole(const at::Tensor& weight, Use use) {
  if (const at::Tensor& known = alias(use); known.defined()) return known;
  const Unrecorded guard;
  at::Tensor made = use.transposed ? base_.t().detach() : base_.detach();
  if (use.with_history) {
    std::shared_ptr<ShadowNode>& node = nodes_[use.transposed];
    std::uint32_t& output = outputs_[use.transposed];
    if (!node) {
      const ShadowNode::Way way{weight.scalar_type(), kind_.low, use.transposed};
      node =
          std::make_shared<ShadowNode>(torch::autograd::impl::gradient_edge(weight), way, flowed_);
      output = node->add_input_metadata(made);
    }
    torch::autograd::impl::set_gradient_edge(made, {node, output});
  }
  enter();
  alias(use) = std::move(made);
  leave();
  return alias(use);
}

// Its history goes on through the view's own.
at::Tensor Shadow::viewed(const at::Tensor& weight, const at::Tensor& view,
                          bool with_history) const {
  const Unrecorded guard;
  at::Tensor shaped =
      base_
          .as_strided(view.sizes(), view.strides(), view.storage_offset() - weight.storage_offset())
          .detach();
  if (with_history) {
    const ShadowNode::Way way{view.scalar_type(), kind_.low, false};
    auto node =
        std::make_shared<ShadowNode>(torch::autograd::impl::gradient_edge(view), way, flowed_);
    torch::autograd::impl::set_gradient_edge(shaped, {node, node->add_input_metadata(shaped)});
  }
  return shaped;
}

at::Tensor Shadow::use(const at::Tensor& weight, const at::Tensor* view, bool with_history) {
  used_.store(true, std::memory_order_relaxed);
  if (view == nullptr) return whole(weight, {.transposed = false, .with_history = with_history});
  if (is_transpose(*view, weight))
    return whole(weight, {.transposed = true, .with_history = with_history});
  return viewed(weight, *view, with_history);
}

void Shadow::invalidate() {
  close();
  invalid_ = true;
}

bool Shadow::begin_refill() {
  if (!base_.defined()) return false;
  close();
  invalid_ = !used_.exchange(false, std::memory_order_relaxed);
  return !invalid_;
}

bool Shadow::can_be_written_with(const at::Tensor& weight) const {
  const at::ScalarType type = weight.scalar_type();
  return base_.defined() && base_.device() == weight.device() &&
         (type == at::kFloat || type == kind_.low) &&
         same_layout(*base_.unsafeGetTensorImpl(), *weight.unsafeGetTensorImpl());
}

void Shadow::end_refill(const at::Tensor& weight) {
  open(weight);
}

void Shadow::retire() {
  close();
  drop_aliases();
  base_.reset();
  nodes_ = {};
}

}  // namespace mezzo::casting
