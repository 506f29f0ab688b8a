// Clearing gradients, and what their overflows leave then.
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <unordered_set>

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
    if (slot.has_master()) clear_gradient(slot.master, set_to_none);
    clear_stash(slot, set_to_none || slot.has_master());
  }
  now_.still_scaled.reset();
  forget_overflow();
  undecided_gradients_ = false;
}

bool OptimizerState::has_gradients() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.weight.grad().defined() || slot.master.grad().defined() || slot.stash.defined();
  });
}

const Slot* OptimizerState::missed_by_master(bool reads_buckets) const {
  std::vector<const Slot*> in_buckets;
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    if (!slot.has_master()) continue;
    if (has_gradient(slot.weight)) return &slot;
    if (!reads_buckets || !is_in_bucket(slot.weight)) continue;
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
  std::unordered_set<const c10::TensorImpl*> cleared;
  for (const at::Tensor& weight : weights) cleared.insert(weight.unsafeGetTensorImpl());
  const bool any_left = std::ranges::any_of(slots_, [&](const Slot& slot) {
    if (cleared.contains(slot.weight.unsafeGetTensorImpl())) return false;
    return slot.weight.grad().defined() || slot.master.grad().defined() || slot.stash.defined();
  });
  if (any_left) return;
  now_.still_scaled.reset();
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

void OptimizerState::drop_gradients() {
  for (Slot& slot : slots_) {
    drop_gradient(slot.weight);
    if (slot.has_master()) drop_gradient(slot.master);
  }
}

}  // namespace mezzo::detail
