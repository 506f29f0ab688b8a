#include "amp/optimizer_gradients.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "amp/gradients.h"

namespace mezzo::amp::detail {
namespace {

/// Gradients that a scope set aside are cleared with the others: they would come back at its exit.
void clear_stash(Slot& slot, bool set_to_none) {
  if (!slot.stash.defined() || slot.in_bucket) return;
  slot.stash = set_to_none ? at::Tensor() : at::zeros_like(slot.stash);
}

bool has_any_gradient(const Slot& slot) {
  return slot.weight.grad().defined() || slot.master.grad().defined() || slot.stash.defined();
}

/// After a gradient was cleared: `had` one.
void note_cleared(Slot& slot, bool had, bool set_to_none) {
  slot.dropped = false;
  slot.zeros = {};
  if (set_to_none || !had || !slot.weight.requires_grad()) return;
  at::Tensor& grad = slot.master.mutable_grad();
  // Inside a scope it is set aside.
  if (!grad.defined() && !slot.stash.defined()) grad = at::zeros_like(slot.master);
  slot.zeros.note(slot.stash.defined() && !slot.has_master() ? slot.stash : grad);
}

}  // namespace

bool OptimizerGradients::any() const {
  return std::ranges::any_of(slots_, has_any_gradient);
}

bool OptimizerGradients::any_outside_scopes() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.weight.grad().defined() || slot.master.grad().defined();
  });
}

bool OptimizerGradients::any_beside(const WeightSet& weights) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    return !weights.contains(slot.weight.unsafeGetTensorImpl()) && has_any_gradient(slot);
  });
}

std::vector<at::Tensor> OptimizerGradients::of_weights() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(slots_.size());
  for (const Slot& slot : slots_) gradients.push_back(slot.weight.grad());
  return gradients;
}

std::vector<at::Tensor> OptimizerGradients::to_step_by() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    gradients.push_back(slot.master.grad().defined() ? slot.master.grad() : slot.weight.grad());
  }
  return gradients;
}

bool OptimizerGradients::wait_for_reduction() const {
  return std::ranges::any_of(slots_,
                             [](const Slot& slot) { return waits_for_reduction(slot.weight); });
}

bool OptimizerGradients::in_buckets() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return is_in_bucket(slot.weight); });
}

const Slot* OptimizerGradients::missed_by_master() const {
  std::vector<const Slot*> in_buckets;
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    if (!slot.has_master()) continue;
    if (slot.cleared.is_still(slot.weight.grad())) continue;
    if (has_gradient(slot.weight)) return &slot;
    if (!is_in_bucket(slot.weight)) continue;
    in_buckets.push_back(&slot);
    gradients.push_back(slot.weight.grad());
  }
  const std::size_t first = first_nonzero(gradients);
  return first < in_buckets.size() ? in_buckets[first] : nullptr;
}

const Slot* OptimizerGradients::written_while_scaled() const {
  for (const Slot& slot : slots_) {
    const at::Tensor& grad = slot.weight.grad();
    if (!grad.defined() || slot.left_scaled.is_still(grad)) continue;
    if (first_nonzero({grad.is_sparse() ? grad._values() : grad}) == 0) return &slot;
  }
  return nullptr;
}

std::vector<at::Tensor> OptimizerGradients::take_fresh() {
  std::vector<at::Tensor> fresh;
  fresh.reserve(slots_.size());
  for (Slot& slot : slots_) fresh.push_back(take_gradient(slot.weight));
  return fresh;
}

void OptimizerGradients::give_fresh_back(const std::vector<at::Tensor>& fresh) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // An optimizer that owns the weight as well has taken its gradient.
    if (fresh[i].defined()) put_gradient(slots_[i].weight, fresh[i]);
  }
}

void OptimizerGradients::set_aside() {
  for (Slot& slot : slots_) {
    slot.in_bucket = false;
    slot.stash = take_gradient(slot.weight);
  }
}

void OptimizerGradients::clear(bool set_to_none) {
  for (Slot& slot : slots_) {
    const bool had = slot.dropped || has_any_gradient(slot);
    // A weight with a master has a gradient only while it is scaled.
    clear_gradient(slot.weight, set_to_none || slot.has_master());
    if (slot.has_master()) {
      slot.cleared.note(slot.weight.grad());
      clear_gradient(slot.master, set_to_none);
    }
    clear_stash(slot, set_to_none || slot.has_master());
    note_cleared(slot, had, set_to_none);
  }
}

void OptimizerGradients::clear_dropped(const std::vector<at::Tensor>& weights, bool set_to_none) {
  for (Slot& slot : slots_) {
    const bool is_cleared = slot.dropped && std::ranges::any_of(weights, [&](const at::Tensor& w) {
                              return w.is_same(slot.weight);
                            });
    if (is_cleared) note_cleared(slot, /*had=*/true, set_to_none);
  }
}

void OptimizerGradients::leave_zeros_with_weights() {
  for (Slot& slot : slots_) {
    at::Tensor& grad = slot.weight.mutable_grad();
    if (!slot.has_master() || grad.defined() || !slot.zeros.is_still(slot.master.grad())) continue;
    grad = at::zeros_like(slot.weight);
    slot.cleared.note(grad);
  }
}

void OptimizerGradients::clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none) {
  for (Slot& slot : slots_) {
    const bool is_cleared = std::ranges::any_of(
        weights, [&](const at::Tensor& weight) { return weight.is_same(slot.weight); });
    if (is_cleared) clear_stash(slot, set_to_none || slot.has_master());
  }
}

void OptimizerGradients::drop() {
  for (Slot& slot : slots_) {
    slot.dropped = slot.dropped || has_gradient(slot.weight) || slot.master.grad().defined();
    drop_gradient(slot.weight);
    if (!slot.has_master()) continue;
    slot.cleared.note(slot.weight.grad());
    drop_gradient(slot.master);
  }
}

void OptimizerGradients::leave_buckets() {
  for (Slot& slot : slots_) {
    if (!slot.has_master() || !is_in_bucket(slot.weight)) continue;
    at::Tensor& grad = slot.weight.mutable_grad();
    if (grad.device() != slot.weight.device() && first_nonzero({grad}) != 0) grad.reset();
  }
}

}  // namespace mezzo::amp::detail
