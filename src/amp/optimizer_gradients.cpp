// Clearing gradients, and what their overflows leave then.
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "amp/gradients.h"
#include "amp/optimizer_state.h"

namespace mezzo::detail {
namespace {

/// Gradients that a scope set aside are cleared with the others: they would come back at its exit.
void clear_stash(Slot& slot, bool set_to_none) {
  if (!slot.stash.defined() || slot.in_bucket) return;
  slot.stash = set_to_none ? at::Tensor() : at::zeros_like(slot.stash);
}

}  // namespace

void OptimizerState::zero_grad(bool set_to_none) {
  if (!session_.enabled()) {
    inner().zero_grad(set_to_none);
    return;
  }
  sync();
  for (Slot& slot : slots_) {
    // A weight with a master has a gradient only while it is scaled.
    clear_gradient(slot.weight, set_to_none || slot.has_master());
    if (slot.has_master()) {
      slot.cleared.note(slot.weight.grad());
      clear_gradient(slot.master, set_to_none);
    }
    clear_stash(slot, set_to_none || slot.has_master());
  }
  now_.still_scaled.reset();
  forget_overflow();
  cleared_.clear();
  undecided_gradients_ = false;
}

bool OptimizerState::has_gradients() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.weight.grad().defined() || slot.master.grad().defined() || slot.stash.defined();
  });
}

void Cleared::note(const at::Tensor& gradient) {
  gradient_ = gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr;
  version_ = gradient.defined() ? gradient._version() : 0;
}

bool Cleared::is_still(const at::Tensor& gradient) const {
  return gradient.unsafeGetTensorImpl() == gradient_ && gradient._version() == version_;
}

const Slot* OptimizerState::missed_by_master() const {
  std::vector<const Slot*> in_buckets;
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    if (!slot.has_master()) continue;
    if (has_gradient(slot.weight)) return &slot;
    if (!is_in_bucket(slot.weight) || slot.cleared.is_still(slot.weight.grad())) continue;
    in_buckets.push_back(&slot);
    gradients.push_back(slot.weight.grad());
  }
  const std::size_t first = first_nonzero(gradients);
  return first < in_buckets.size() ? in_buckets[first] : nullptr;
}

void OptimizerState::forget_overflow() {
  now_.found_inf.reset();
  now_.overflow_ranks = {};
  now_.several_losses = false;
  now_.had_gradients = false;
}

void OptimizerState::forget_cleared(const std::vector<at::Tensor>& weights) {
  if (!now_.found_inf.defined() && !now_.still_scaled) return;
  for (const at::Tensor& weight : weights) cleared_.insert(weight.unsafeGetTensorImpl());
  const bool any_left = std::ranges::any_of(slots_, [&](const Slot& slot) {
    if (cleared_.contains(slot.weight.unsafeGetTensorImpl())) return false;
    return slot.weight.grad().defined() || slot.master.grad().defined() || slot.stash.defined();
  });
  if (any_left) return;
  now_.still_scaled.reset();
  cleared_.clear();
  forget_overflow();
}

void OptimizerState::clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none) {
  if (!in_scope_) return;
  for (Slot& slot : slots_) {
    const bool is_cleared = std::ranges::any_of(
        weights, [&](const at::Tensor& weight) { return weight.is_same(slot.weight); });
    if (is_cleared) clear_stash(slot, set_to_none || slot.has_master());
  }
}

void OptimizerState::leave_buckets() {
  if (now_.still_scaled) return;
  for (Slot& slot : slots_) {
    if (!slot.has_master() || !is_in_bucket(slot.weight)) continue;
    at::Tensor& grad = slot.weight.mutable_grad();
    if (grad.device() != slot.weight.device() && first_nonzero({grad}) != 0) grad.reset();
  }
}

void OptimizerState::drop_gradients() {
  for (Slot& slot : slots_) {
    drop_gradient(slot.weight);
    if (!slot.has_master()) continue;
    slot.cleared.note(slot.weight.grad());
    drop_gradient(slot.master);
  }
}

}  // namespace mezzo::detail
