#include "casting/shadow.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/t.h>
#include <ATen/ops/to.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <utility>

#include "casting/counts.h"
#include "casting/plain_transpose.h"
#include "casting/rounding.h"
#include "core/autograd_node.h"

namespace mezzo::casting {
namespace {

bool is_transpose(const at::Tensor& view, const at::Tensor& weight, bool with_history) {
  if (view.storage_offset() != weight.storage_offset() ||
      !transposed_layout(*view.unsafeGetTensorImpl(), *weight.unsafeGetTensorImpl()))
    return false;
  if (!with_history) return true;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  return is_plain_transpose(*view.grad_fn(), accumulator.get());
}

// A receiver that takes gradients of any type gets low ones as they are.
bool takes_any_type(const torch::autograd::Edge& to) {
  return !to.function->input_metadata(to.input_nr).grad_dtype();
}

}  // namespace

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
  const bool any_type = takes_any_type(next_edge(0));
  if (gradient.scalar_type() == at::kFloat) {
    if (any_type || way_.leaf != at::kFloat) {
      gradient = gradient.to(way_.kind.low);
    } else if (way_.kind.in_float) {
      gradient = rounded_gradient(gradient, way_.kind.low);
    }
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
  // Autograd adds up what many uses give in the type of this input, and so does LibTorch's
  // recurrent layer, which uses its weights at each moment.
  if (way.leaf == at::kFloat && !takes_any_type(node->next_edge(0)))
    node->mutable_input_metadata(output).set_grad_dtype(at::kFloat);
  return {std::move(node), output};
}

void Shadow::open(const at::Tensor& weight) {
  invalid_ = false;
  paused_ = false;
  gate_->open(weight);
}

bool Shadow::fresh(const at::Tensor& weight, const QueuePlace& here) const {
  return base_.defined() && capture_ == here.capture && gate_->holds_for(weight);
}

void Shadow::cast_again(const at::Tensor& weight, const QueuePlace& here) {
  const Unrecorded guard;
  const bool changed =
      base_.defined() && capture_ == here.capture && !invalid_ && gate_->version_differs(weight);
  gate_->close();
  if (changed) {
    write_at(here);
  } else {
    base_ = at::empty_like(weight, weight.options().dtype(kind_.in_float ? at::kFloat : kind_.low));
    if (capture_ != here.capture) end_.reset();
    capture_ = here.capture;
    users_.begin(here);
    gate_->drop_copies();
  }
  fill(weight);
  mark_end(here);
  count_weight_casts();
  open(weight);
}

// An event that no other copy shares, and that no graph knows, is recorded again.
void Shadow::mark_end(const QueuePlace& here) {
  if (!here.has_streams()) {
    end_.reset();
  } else if (end_ != nullptr && end_.use_count() == 1 && here.capture == 0) {
    end_->move_to(here);
  } else {
    end_ = std::make_shared<FillEnd>(here);
  }
}

// Another stream may still write the values that are replaced.
void Shadow::write_at(const QueuePlace& here) {
  if (end_ != nullptr) end_->comes_before(here);
  users_.add(here, base_);
}

void Shadow::fill(const at::Tensor& weight) {
  if (kind_.in_float) {
    round_into(base_, weight.detach(), kind_.low);
  } else {
    base_.copy_(weight.detach());
  }
}

at::Tensor Shadow::whole(const at::Tensor& weight, Use use, const QueuePlace& here) {
  if (const at::Tensor& known = gate_->copy(use); known.defined()) return known;
  const Unrecorded guard;
  at::Tensor made = use.transposed ? base_.t().detach() : base_.detach();
  if (use.with_history)
    torch::autograd::impl::set_gradient_edge(made, edge_to(weight, use, made, here));
  // A copy with a history holds its node.
  if (!use.with_history || !here.has_streams()) gate_->keep(use, made);
  return made;
}

torch::autograd::Edge Shadow::edge_to(const at::Tensor& weight, Use use, const at::Tensor& copy,
                                      const QueuePlace& here) {
  led_to_weight_ = true;
  const ShadowNode::Way way{weight.scalar_type(), kind_, use.transposed};
  if (!here.has_streams()) {
    torch::autograd::Edge& edge = edges_[use.transposed];
    if (!edge.is_valid()) edge = shadow_edge(weight, way, gate_, copy);
    return edge;
  }
  if (NodePointer node = nodes_[use.transposed].lock();
      node && node->input_metadata(0).stream() == *here.stream)
    return {std::move(node), 0};
  torch::autograd::Edge edge = shadow_edge(weight, way, gate_, copy);
  nodes_[use.transposed] = WeakNode(edge.function);
  return edge;
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
    const ShadowNode::Way way{view.scalar_type(), kind_, false};
    torch::autograd::impl::set_gradient_edge(shaped, shadow_edge(view, way, gate_, shaped));
  }
  return shaped;
}

at::Tensor Shadow::use(const at::Tensor& weight, const at::Tensor* view, bool with_history,
                       const QueuePlace& here) {
  gate_->mark_used();
  if (end_ != nullptr) end_->comes_before(here);
  users_.add(here, base_);
  if (view == nullptr)
    return whole(weight, {.transposed = false, .with_history = with_history}, here);
  if (is_transpose(*view, weight, with_history))
    return whole(weight, {.transposed = true, .with_history = with_history}, here);
  return viewed(weight, *view, with_history);
}

void Shadow::invalidate() {
  gate_->close();
  invalid_ = true;
}

void Shadow::pause() {
  gate_->pause();
  paused_ = true;
}

void Shadow::resume(const at::Tensor& weight) {
  if (paused_) open(weight);
}

bool Shadow::begin_refill(const QueuePlace& here) {
  if (!base_.defined()) return false;
  gate_->close();
  const bool in_a_graph = capture_ != 0 || here.capture != 0;
  invalid_ = !gate_->take_used() || in_a_graph;
  if (!invalid_) write_at(here);
  return !invalid_;
}

bool Shadow::can_be_written_with(const at::Tensor& weight) const {
  const at::ScalarType type = weight.scalar_type();
  return base_.defined() && base_.device() == weight.device() &&
         (type == at::kFloat || type == kind_.low) &&
         // A step that a device skips leaves the copy as it is: then it must be this weight's.
         !invalid_ && !gate_->version_differs(weight) &&
         same_layout(*base_.unsafeGetTensorImpl(), *weight.unsafeGetTensorImpl());
}

void Shadow::end_refill(const at::Tensor& weight, std::shared_ptr<FillEnd> end) {
  end_ = std::move(end);
  open(weight);
}

void Shadow::retire() {
  gate_->close();
  gate_->drop_copies();
  base_.reset();
  end_.reset();
  edges_ = {};
  nodes_ = {};
  led_to_weight_ = false;
}

}  // namespace mezzo::casting
