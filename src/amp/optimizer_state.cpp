#include "amp/optimizer_state.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/settle.h"
#include "bridge/host.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "distributed/agreement.h"
#include "scaling/finite_check.h"
#include "scaling/to_device.h"

namespace mezzo::detail {
namespace {

void move_state(torch::optim::Optimizer& optimizer, const at::Tensor& from, const at::Tensor& to) {
  optim::settle_step_counts(optimizer);
  auto& states = optimizer.state();
  const auto found = states.find(from.unsafeGetTensorImpl());
  if (found == states.end()) return;
  auto state = std::move(found->second);
  states.erase(found);
  states[to.unsafeGetTensorImpl()] = std::move(state);
}

/// Multiplies gradients that lie in buckets.
void rescale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) {
  if (gradients.empty() || (factor.is_cpu() && factor.item<float>() == 1)) return;
  for (const at::Tensor& grad : gradients) {
    const at::Tensor wide = is_low(grad) ? grad.to(at::kFloat) : grad;
    grad.copy_(wide.mul(factor.to(grad.device())));
  }
}

/// What an exception left of a reduction writes into buckets until it is closed.
void close_broken_backwards(const std::vector<Slot>& slots) {
  try {
    for (const Slot& slot : slots) parallel::close_broken_backward(slot.weight.grad());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next collective says it
  }
}

}  // namespace

OptimizerState::OptimizerState(Session& session, OptimizerRef ref, int index)
    : session_(session),
      ref_(std::move(ref)),
      index_(index),
      snapshot_(session.options().protect_rng) {
  if (!session.enabled() || ref_.step) return;
  fused_ = FusedStep::of(inner());
  if (fused_) FusedStep::attach(fused_);
}

// ---- parameters and their masters

void OptimizerState::sync() {
  std::size_t place = 0;
  bool same = true;
  for (auto& group : inner().param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      same = same && place < places_.size() && slot_at(place).master.is_same(parameter);
      if (!same) break;
      const Slot& slot = slot_at(place++);
      // Unfrozen since: it needs a master now.
      same = slot.has_master() || !session_.plan().masters || !is_low(slot.weight) ||
             !slot.weight.requires_grad();
    }
  }
  if (!same || place != places_.size()) rebuild_slots();
}

void OptimizerState::rebuild_slots() {
  session_.convert_new_weights();
  std::unordered_map<const c10::TensorImpl*, Slot> known;
  for (Slot& slot : slots_) known.emplace(slot.master.unsafeGetTensorImpl(), slot);
  const bool scales = session_.plan().scale_rules.dynamic || session_.plan().first_scale != 1.0;
  std::vector<Slot> slots;
  std::unordered_map<const c10::TensorImpl*, std::size_t> place_of;
  std::vector<std::size_t> places;
  for (auto& group : inner().param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      const auto old = known.find(parameter.unsafeGetTensorImpl());
      const at::Tensor& weight = old != known.end() ? old->second.weight : parameter;
      const auto [place, is_first] =
          place_of.try_emplace(weight.unsafeGetTensorImpl(), slots.size());
      places.push_back(place->second);
      // Listed again: the optimizer steps the same tensor again, by the same gradient.
      if (!is_first) {
        parameter = slots[place->second].master;
        continue;
      }
      const bool keeps = old != known.end() && old->second.has_master();
      slots.push_back(keeps ? old->second : slot_of(parameter));
      if (old != known.end()) {
        slots.back().stash = old->second.stash;
        slots.back().in_bucket = old->second.in_bucket;
      }
      if (takes_gradients_as_they_come(slots.back())) {
        free_gradient_type(slots.back().weight, true);
      }
      // A gradient from before a parameter was ours may carry a scale that nobody knows any more.
      const bool is_new = was_synced_ && old == known.end();
      if (is_new && scales) drop_gradient(slots.back().weight);
    }
  }
  slots_ = std::move(slots);
  places_ = std::move(places);
  was_synced_ = true;
  find_models();
  witness_.look(slots_, inner());
}

/// Low gradients of a float weight's casts go to a step that unscales them itself.
bool OptimizerState::takes_gradients_as_they_come(const Slot& slot) const {
  return fused_ && session_.options().defer_unscale && session_.plan().policy.has_value() &&
         !slot.has_master() && slot.weight.scalar_type() == at::kFloat && slot.weight.is_leaf();
}

void OptimizerState::find_models() {
  std::unordered_set<const c10::TensorImpl*> mine;
  for (const Slot& slot : slots_) mine.insert(slot.weight.unsafeGetTensorImpl());
  models_.clear();
  for (const auto& model : session_.models()) {
    const auto parameters = model->module().parameters();
    const bool owns = std::ranges::any_of(parameters, [&](const at::Tensor& each) {
      return mine.contains(each.unsafeGetTensorImpl());
    });
    if (!owns) continue;
    models_.push_back(model.get());
    model->add_owner(*this);
  }
}

std::int64_t OptimizerState::model_calls() const {
  std::int64_t calls = 0;
  for (const ModelState* model : models_) calls += model->calls();
  return calls;
}

Slot OptimizerState::slot_of(at::Tensor& parameter) {
  Slot slot{parameter, parameter, {}, false, {}, nullptr};
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
  leave_gradients_behind();
  if (fused_) fused_->detach();
  casting::leave_casts(weights());
  for (Slot& slot : slots_) {
    if (takes_gradients_as_they_come(slot)) free_gradient_type(slot.weight, false);
  }
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
  take_foreign_steps();
  // Cleared behind our back, by the network's or the bare optimizer's zero_grad.
  if (now_.found_inf.defined() && now_.had_gradients && !has_gradients()) forget_overflow();
}

void OptimizerState::check_gradients_at_entry(std::string_view where) const {
  if (now_.still_scaled) return;
  for (const Slot& slot : slots_) {
    if (slot.has_master() && has_gradient(slot.weight)) {
      raise(where, "'", slot.entry->name,
            "' has a gradient from a backward pass outside scale_loss, which its master would "
            "miss; call "
            "scale_loss(loss, optimizer).backward() for every loss, and zero_grad() for gradients "
            "that are not wanted");
    }
  }
}

void OptimizerState::enter(const scaling::LossScaler& scaler, WeightSet& in_buckets) {
  for (const auto& other : session_.optimizers()) {
    if (other->undecided_gradients_ && other->shares_weights(*this))
      other->leave_gradients_behind();
  }
  in_scope_ = true;
  cleared_.clear();
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones({}, scaler.inverse().options());
  const auto others = scaled_by_others();
  std::vector<at::Tensor> to_scale;
  for (Slot& slot : slots_) {
    slot.in_bucket = is_in_bucket(slot.weight);
    if (!slot.in_bucket) {
      slot.stash = take_gradient(slot.weight);
      continue;
    }
    slot.stash = slot.weight.grad().clone();
    if (!in_buckets.insert(slot.weight.unsafeGetTensorImpl()).second) continue;
    const auto other = others.find(slot.weight.unsafeGetTensorImpl());
    if (now_.still_scaled || other == others.end()) {
      to_scale.push_back(slot.weight.grad());
    } else {
      rescale({slot.weight.grad()}, scaler.multiply(other->second));
    }
  }
  if (to_scale.empty()) return;
  // From the scale that they have to the one that comes, at once: between the two a low type would
  // lose what is small.
  rescale(to_scale, scaler.multiply(now_.still_scaled ? now_.still_scaled->inverse : one));
}

/// The weights whose gradients blocks of other optimizers left scaled, and what unscales them.
std::unordered_map<const c10::TensorImpl*, at::Tensor> OptimizerState::scaled_by_others() const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> scaled;
  for (const auto& other : session_.optimizers()) {
    if (other.get() == this || !other->now_.still_scaled) continue;
    for (const Slot& slot : other->slots_)
      scaled.emplace(slot.weight.unsafeGetTensorImpl(), other->now_.still_scaled->inverse);
  }
  return scaled;
}

bool OptimizerState::waits_for_reduction() const {
  return std::ranges::any_of(
      slots_, [](const Slot& slot) { return detail::waits_for_reduction(slot.weight); });
}

void OptimizerState::undo() {
  in_scope_ = false;
  close_broken_backwards(slots_);
  for (Slot& slot : slots_) put_gradient(slot.weight, std::exchange(slot.stash, at::Tensor()));
}

bool OptimizerState::is_scaled_by_another(int loss_id) const {
  if (!now_.still_scaled || now_.still_scaled->loss_id == loss_id) return false;
  return std::ranges::none_of(slots_, [](const Slot& slot) { return slot.in_bucket; });
}

bool OptimizerState::may_settle() const {
  return now_.still_scaled && !in_scope_ &&
         std::ranges::none_of(slots_, [](const Slot& slot) { return is_in_bucket(slot.weight); });
}

bool OptimizerState::shares_weights(const OptimizerState& other) const {
  std::unordered_set<const c10::TensorImpl*> mine;
  for (const Slot& slot : slots_) mine.insert(slot.weight.unsafeGetTensorImpl());
  return std::ranges::any_of(other.slots_, [&](const Slot& slot) {
    return mine.contains(slot.weight.unsafeGetTensorImpl());
  });
}

std::vector<at::Tensor> OptimizerState::take_fresh() {
  std::vector<at::Tensor> fresh;
  for (Slot& slot : slots_) fresh.push_back(take_gradient(slot.weight));
  return fresh;
}

void OptimizerState::set_aside() {
  for (Slot& slot : slots_) {
    slot.in_bucket = false;
    slot.stash = take_gradient(slot.weight);
  }
}

void OptimizerState::give_fresh_back(const std::vector<at::Tensor>& fresh) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // What another optimizer owns as well, it took.
    if (fresh[i].defined()) put_gradient(slots_[i].weight, fresh[i]);
  }
}

void OptimizerState::abandon() {
  in_scope_ = false;
  now_.still_scaled.reset();
  for (Slot& slot : slots_) slot.stash.reset();
  drop_gradients();
}

void OptimizerState::leave_scaled(const StillScaled& scaled) {
  in_scope_ = false;
  now_.had_backward = true;
  const at::NoGradGuard no_grad;
  const std::optional<StillScaled>& before = now_.still_scaled;
  // What an overflow left is dropped at the step anyway; in the sum it would be laid to this loss.
  const bool is_lost = !now_.still_scaled && must_skip();
  for (Slot& slot : slots_) {
    at::Tensor older = std::exchange(slot.stash, at::Tensor());
    if (!older.defined() || slot.in_bucket || is_lost) continue;
    older = widened(older, slot.master);
    // Gradients that were delayed at another scale are brought to this one first.
    bring_to(older, scaled.scale, before ? &before->scale : nullptr);
    put_gradient(slot.weight, sum_of(older, slot.weight.grad()));
  }
  now_.still_scaled = scaled;
}

void OptimizerState::judge(int loss_id, const Session::Verdict& verdict,
                           const scaling::ScaleValue& scale_before) {
  const at::NoGradGuard no_grad;
  const at::Tensor& found_inf = verdict.found_inf;
  if (!now_.found_inf.defined()) {
    now_.found_inf = found_inf.clone();
  } else {
    now_.found_inf =
        at::maximum(now_.found_inf, scaling::to_device(found_inf, now_.found_inf.device()));
  }
  // The loss that overflowed is the one to tell about.
  const bool on_host = bridge::is_host(found_inf.device());
  const bool overflowed = !on_host || found_inf.item<float>() != 0;
  now_.several_losses =
      now_.several_losses || (!on_host && now_.scale_known && now_.loss_id != loss_id);
  if (overflowed) now_.overflow_ranks.add(verdict.ranks);
  now_.had_gradients = now_.had_gradients || has_gradients();
  if (!now_.scale_known || overflowed) note_scale(loss_id, scale_before);
}

void OptimizerState::note_scale(int loss_id, const scaling::ScaleValue& before) {
  now_.loss_id = loss_id;
  now_.scale_before = before;
  now_.scale_known = true;
}

void OptimizerState::publish_masters() {
  std::vector<Weight*> weights;
  for (const Slot& slot : slots_) {
    if (slot.has_master()) weights.push_back(slot.entry);
  }
  session_.weights().publish(weights);
}

std::vector<at::Tensor> OptimizerState::weights() const {
  std::vector<at::Tensor> weights;
  weights.reserve(slots_.size());
  for (const Slot& slot : slots_) weights.push_back(slot.weight);
  return weights;
}

bool OptimizerState::keeps_casts() const {
  const Plan& plan = session_.plan();
  if (plan.policy || (plan.convert && is_low(*plan.convert))) return true;
  // Networks that their owner made low are emulated as well.
  return std::ranges::any_of(
      models_, [](const ModelState* model) { return model->low_policy().has_value(); });
}

void OptimizerState::refresh_casts() {
  if (keeps_casts()) casting::refresh_casts(weights());
}

void OptimizerState::invalidate_casts() {
  if (keeps_casts()) casting::invalidate_casts(weights());
}

void OptimizerState::set_steps(std::int64_t applied, std::int64_t skipped) {
  hear(/*waits=*/true);
  applied_ = applied;
  skipped_ = skipped;
}

}  // namespace mezzo::detail
