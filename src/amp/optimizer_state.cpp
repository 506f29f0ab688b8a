#include "amp/optimizer_state.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <unordered_map>

#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/settle.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "scaling/finite_check.h"

namespace mezzo::detail {
namespace {

void move_state(torch::optim::Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to) {
  auto& states = optimizer.state();
  const auto found = states.find(from.unsafeGetTensorImpl());
  if (found == states.end()) return;
  auto state = std::move(found->second);
  states.erase(found);
  states[to.unsafeGetTensorImpl()] = std::move(state);
}

void clear(at::Tensor& grad, bool set_to_none) {
  if (!grad.defined()) return;
  if (set_to_none) {
    grad.reset();
  } else {
    if (grad.grad_fn()) {
      grad.detach_();
    } else {
      grad.requires_grad_(false);
    }
    grad.zero_();
  }
}

}  // namespace

OptimizerState::OptimizerState(Session& session, OptimizerRef ref, int index)
    : session_(session),
      ref_(std::move(ref)),
      index_(index),
      snapshot_(session.options().protect_rng) {}

// ---- parameters and their masters

void OptimizerState::sync() {
  std::size_t place = 0;
  bool same = true;
  for (auto& group : inner().param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      same = same && place < slots_.size() && slots_[place].master.is_same(parameter);
      if (!same) break;
      const Slot& slot = slots_[place++];
      // Unfrozen since: it needs a master now.
      same = slot.has_master() || !session_.plan().masters || !is_low(slot.weight) ||
             !slot.weight.requires_grad();
    }
  }
  if (!same || place != slots_.size()) rebuild_slots();
}

void OptimizerState::rebuild_slots() {
  session_.convert_new_weights();
  std::unordered_map<const c10::TensorImpl*, Slot> known;
  for (Slot& slot : slots_) known.emplace(slot.master.unsafeGetTensorImpl(), slot);
  std::vector<Slot> slots;
  for (auto& group : inner().param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      const auto old = known.find(parameter.unsafeGetTensorImpl());
      const bool keeps = old != known.end() && old->second.has_master();
      slots.push_back(keeps ? old->second : slot_of(parameter));
    }
  }
  slots_ = std::move(slots);
  for (const auto& model : session_.models()) {
    for (const at::Tensor& parameter : model->module().parameters()) {
      for (const Slot& slot : slots_) {
        if (slot.weight.is_same(parameter)) model->add_owner(*this);
      }
    }
  }
}

Slot OptimizerState::slot_of(at::Tensor& parameter) {
  Slot slot{parameter, parameter, {}, nullptr};
  WeightTable& weights = session_.weights();
  Weight* entry = weights.find(parameter);
  const bool wants_master =
      session_.plan().masters && is_low(parameter) && parameter.requires_grad();
  if (!wants_master) return slot;
  if (entry == nullptr || !entry->master.defined()) {
    const at::NoGradGuard no_grad;
    Weight weight{parameter, parameter.detach().to(at::kFloat).set_requires_grad(true),
                  parameter.scalar_type(),
                  entry == nullptr ? parameter.scalar_type() : entry->original,
                  session_.name_of(parameter)};
    entry = &weights.add(std::move(weight));
  }
  slot.master = entry->master;
  slot.entry = entry;
  move_state(inner(), slot.weight, slot.master);
  parameter = slot.master;
  return slot;
}

void OptimizerState::restore() {
  std::unordered_map<const c10::TensorImpl*, Slot*> by_master;
  for (Slot& slot : slots_) {
    if (slot.has_master()) by_master.emplace(slot.master.unsafeGetTensorImpl(), &slot);
  }
  for (auto& group : inner().param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      const auto found = by_master.find(parameter.unsafeGetTensorImpl());
      if (found == by_master.end()) continue;
      move_state(inner(), found->second->master, found->second->weight);
      parameter = found->second->weight;
    }
  }
}

// ---- a scope's entrance and exits

void OptimizerState::check_entry(std::string_view where) {
  if (in_scope_) {
    raise(where, "optimizer ", index_,
          " is inside a scale_loss scope already; close the first one, or give both losses one "
          "scope");
  }
  if (pending_error_) std::rethrow_exception(std::exchange(pending_error_, nullptr));
  sync();
  if (still_scaled_) return;
  for (const Slot& slot : slots_) {
    if (slot.has_master() && slot.weight.grad().defined()) {
      raise(where, "'", slot.entry->name,
            "' has a gradient from a backward pass outside scale_loss, which its master would "
            "miss; call "
            "scale_loss(loss, optimizer).backward() for every loss, and zero_grad() for gradients "
            "that are not wanted");
    }
  }
}

void OptimizerState::enter() {
  in_scope_ = true;
  for (Slot& slot : slots_) {
    slot.stash = slot.weight.grad();
    slot.weight.mutable_grad().reset();
  }
}

void OptimizerState::undo() {
  in_scope_ = false;
  for (Slot& slot : slots_) slot.weight.mutable_grad() = std::exchange(slot.stash, at::Tensor());
}

void OptimizerState::leave_scaled(const StillScaled& scaled) {
  in_scope_ = false;
  had_backward_ = true;
  const at::NoGradGuard no_grad;
  // Gradients that were delayed at another scale are brought to this one first.
  const double ratio = still_scaled_ ? scaled.scale / still_scaled_->scale : 1.0;
  for (Slot& slot : slots_) {
    at::Tensor older = std::exchange(slot.stash, at::Tensor());
    if (!older.defined()) continue;
    if (!still_scaled_) {
      older.mul_(scaled.scale);
    } else if (ratio != 1.0) {
      older.mul_(ratio);
    }
    at::Tensor& grad = slot.weight.mutable_grad();
    if (grad.defined()) older.add_(grad);
    grad = older;
  }
  still_scaled_ = scaled;
}

void OptimizerState::judge(int loss_id, const at::Tensor& found_inf, double scale_before) {
  const at::NoGradGuard no_grad;
  if (!found_inf_.defined()) {
    found_inf_ = found_inf.clone();
  } else {
    found_inf_ = at::maximum(found_inf_, found_inf.to(found_inf_.device(), /*non_blocking=*/true));
  }
  // The loss that overflowed is the one to tell about.
  const bool on_host = found_inf.device().is_cpu();
  if (!scale_known_ || !on_host || found_inf.item<float>() != 0) note_scale(loss_id, scale_before);
}

void OptimizerState::note_scale(int loss_id, double before) {
  loss_id_ = loss_id;
  scale_before_ = before;
  scale_known_ = true;
}

// ---- gradients

void OptimizerState::zero_grad(bool set_to_none) {
  inner().zero_grad(set_to_none);
  for (Slot& slot : slots_) {
    if (slot.has_master()) clear(slot.weight.mutable_grad(), set_to_none);
  }
  if (!session_.enabled()) return;
  still_scaled_.reset();
  found_inf_.reset();
}

void OptimizerState::drop_gradients() {
  for (Slot& slot : slots_) {
    slot.weight.mutable_grad().reset();
    slot.master.mutable_grad().reset();
  }
}

void OptimizerState::publish_masters() {
  std::vector<Weight*> weights;
  for (const Slot& slot : slots_) {
    if (slot.has_master()) weights.push_back(slot.entry);
  }
  session_.weights().publish(weights);
}

void OptimizerState::refresh_casts() {
  if (!session_.plan().policy) return;
  std::vector<at::Tensor> weights;
  weights.reserve(slots_.size());
  for (const Slot& slot : slots_) weights.push_back(slot.weight);
  casting::refresh_casts(weights);
}

void OptimizerState::set_steps(std::int64_t applied, std::int64_t skipped) {
  applied_ = applied;
  skipped_ = skipped;
}

}  // namespace mezzo::detail
