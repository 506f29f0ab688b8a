#include "amp/optimizer_slots.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_map>

#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "bridge/device.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "mezzo/optim.h"
#include "optim/step_context.h"

namespace mezzo::amp::detail {
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

}  // namespace

void Cleared::note(const at::Tensor& gradient) {
  gradient_.reset();
  if (gradient.defined()) gradient_.emplace(gradient.getIntrusivePtr());
  version_ = gradient.defined() ? gradient._version() : 0;
}

bool Cleared::is_still(const at::Tensor& gradient) const {
  return gradient_ && gradient.defined() &&
         gradient.unsafeGetTensorImpl() == gradient_->_unsafe_get_target() &&
         gradient._version() == version_;
}

void LeftScaled::note(const at::Tensor& gradient) {
  same_.note(gradient);
  samples_ = gradient.defined() ? samples_of(gradient) : Samples();
}

bool LeftScaled::is_still(const at::Tensor& gradient) const {
  return same_.is_still(gradient) && samples_of(gradient) == samples_;
}

OptimizerSlots::OptimizerSlots(Session& session, torch::optim::Optimizer& inner, Snapshot& snapshot,
                               bool takes_low_gradients)
    : session_(session),
      inner_(inner),
      snapshot_(snapshot),
      takes_low_gradients_(takes_low_gradients) {}

void OptimizerSlots::sync() {
  std::size_t place = 0;
  bool same = true;
  for (auto& group : inner_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      same = same && place < places_.size() && at(place).master.is_same(parameter);
      if (!same) break;
      const Slot& slot = at(place++);
      // Unfrozen since: it needs a master now.
      same = slot.has_master() || !session_.plan().masters || !is_low(slot.weight) ||
             !slot.weight.requires_grad();
    }
  }
  if (same && place == places_.size()) return;
  if (capture() != 0) {
    raise("optimizer",
          "parameters were added or unfrozen, and get their places while a graph is captured: make "
          "one ordinary step with them before the capture");
  }
  rebuild();
}

void OptimizerSlots::rebuild() {
  session_.convert_new_weights();
  std::unordered_map<const c10::TensorImpl*, Slot> known;
  for (Slot& slot : slots_) known.emplace(slot.master.unsafeGetTensorImpl(), slot);
  const bool scales = session_.scales_losses();
  std::vector<Slot> slots;
  std::unordered_map<const c10::TensorImpl*, std::size_t> place_of;
  std::vector<std::size_t> places;
  for (auto& group : inner_.param_groups()) {
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
      if (is_new && scales) {
        drop_gradient(slots.back().weight);
        drop_gradient(slots.back().master);
      }
    }
  }
  slots_ = std::move(slots);
  places_ = std::move(places);
  was_synced_ = true;
  find_models();
  split_masters();
  witness_.look(slots_, inner_);
  note_cast_values();
}

/// Low gradients of a float weight's casts go to a step that unscales them itself.
bool OptimizerSlots::takes_gradients_as_they_come(const Slot& slot) const {
  return takes_low_gradients_ && session_.options().defer_unscale &&
         session_.plan().policy.has_value() && !slot.has_master() &&
         slot.weight.scalar_type() == at::kFloat && slot.weight.is_leaf();
}

void OptimizerSlots::find_models() {
  WeightSet mine;
  for (const Slot& slot : slots_) mine.insert(slot.weight.unsafeGetTensorImpl());
  models_.clear();
  for (const auto& model : session_.models()) {
    const auto parameters = model->module().parameters();
    const bool owns = std::ranges::any_of(parameters, [&](const at::Tensor& each) {
      return mine.contains(each.unsafeGetTensorImpl());
    });
    if (!owns) continue;
    models_.push_back(model.get());
    model->snapshot_before_training(snapshot_);
  }
}

std::int64_t OptimizerSlots::model_calls() const {
  std::int64_t calls = 0;
  for (const ModelState* model : models_) calls += model->calls();
  return calls;
}

bool OptimizerSlots::steps(const ModelState& model) const {
  return std::ranges::find(models_, &model) != models_.end();
}

bool OptimizerSlots::calls_are_missing() const {
  return !models_.empty() && model_calls() == calls_at_step_;
}

Slot OptimizerSlots::slot_of(at::Tensor& parameter) {
  Slot slot;
  slot.weight = slot.master = parameter;
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
  move_state(inner_, slot.weight, slot.master);
  parameter = slot.master;
  return slot;
}

void OptimizerSlots::restore() {
  casting::leave_casts(weights());
  for (Slot& slot : slots_) {
    if (takes_gradients_as_they_come(slot)) free_gradient_type(slot.weight, false);
  }
  std::unordered_map<const c10::TensorImpl*, Slot*> by_master;
  for (Slot& slot : slots_) {
    if (slot.has_master()) by_master.emplace(slot.master.unsafeGetTensorImpl(), &slot);
  }
  for (auto& group : inner_.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      const auto found = by_master.find(parameter.unsafeGetTensorImpl());
      if (found == by_master.end()) continue;
      move_state(inner_, found->second->master, found->second->weight);
      parameter = found->second->weight;
    }
  }
}

std::uint64_t OptimizerSlots::capture() const {
  std::optional<at::Device> asked;
  for (const Slot& slot : slots_) {
    if (asked == slot.weight.device()) continue;
    asked = slot.weight.device();
    if (const std::uint64_t capture = bridge::current_capture(*asked)) return capture;
  }
  return 0;
}

std::vector<at::Tensor> OptimizerSlots::weights() const {
  std::vector<at::Tensor> weights;
  weights.reserve(slots_.size());
  for (const Slot& slot : slots_) weights.push_back(slot.weight);
  return weights;
}

bool OptimizerSlots::shares_weights(const OptimizerSlots& other) const {
  WeightSet mine;
  for (const Slot& slot : slots_) mine.insert(slot.weight.unsafeGetTensorImpl());
  return std::ranges::any_of(other.slots_, [&](const Slot& slot) {
    return mine.contains(slot.weight.unsafeGetTensorImpl());
  });
}

void OptimizerSlots::split_masters() {
  if (!session_.plan().split_masters) return;
  for (const Slot& slot : slots_) {
    if (slot.has_master()) split_master(*slot.entry);
  }
}

void OptimizerSlots::give_masters_memory() {
  for (const Slot& slot : slots_) {
    if (slot.has_master()) give_memory(*slot.entry);
  }
}

void OptimizerSlots::publish_masters() {
  std::vector<Weight*> weights;
  for (const Slot& slot : slots_) {
    if (slot.has_master()) weights.push_back(slot.entry);
  }
  session_.weights().publish(weights);
}

bool OptimizerSlots::keeps_casts() const {
  const Plan& plan = session_.plan();
  if (plan.policy || (plan.convert && is_low(*plan.convert))) return true;
  // Networks that their owner made low are emulated as well.
  return std::ranges::any_of(
      models_, [](const ModelState* model) { return model->low_policy().has_value(); });
}

void OptimizerSlots::refresh_casts() {
  if (keeps_casts()) casting::refresh_casts(weights());
}

void OptimizerSlots::invalidate_casts() {
  if (keeps_casts()) casting::invalidate_casts(weights());
}

void OptimizerSlots::note_cast_values() {
  if (!keeps_casts()) return;
  cast_values_.resize(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) cast_values_[i] = samples_of(slots_[i].weight);
}

void OptimizerSlots::doubt_written_casts() {
  if (is_stepping_ || !keeps_casts()) return;
  std::vector<at::Tensor> written;
  for (std::size_t i = 0; i < std::min(slots_.size(), cast_values_.size()); ++i) {
    if (samples_of(slots_[i].weight) != cast_values_[i]) written.push_back(slots_[i].weight);
  }
  if (!written.empty()) casting::invalidate_casts(written);
  if (!written.empty() || cast_values_.size() != slots_.size()) note_cast_values();
}

bool OptimizerSlots::masters_were_written() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.has_master() && WeightTable::master_was_written(*slot.entry);
  });
}

/// Weights take over what was written into masters. A step through data() is seen by single values:
/// after it the other weights are published as well.
void OptimizerSlots::publish_written() {
  std::vector<Weight*> written;
  bool is_announced = true;
  for (const Slot& slot : slots_) {
    if (!slot.has_master() || !WeightTable::master_was_written(*slot.entry)) continue;
    if (WeightTable::is_torn(*slot.entry)) {
      raise("model", "'", slot.entry->name,
            "' was written through data(), and its float master by a step of the bare optimizer: "
            "one of the two would be lost; call step() of the handle that initialize returned, and "
            "invalidate_casts() after writes through data()");
    }
    written.push_back(slot.entry);
    is_announced = is_announced && slot.entry->master._version() != slot.entry->master_version;
  }
  if (is_announced) {
    session_.weights().publish(written);
  } else {
    publish_masters();
  }
}

void OptimizerSlots::take_foreign_steps() {
  if (is_stepping_) return;
  const bool writes_masters = masters_were_written();
  if (writes_masters) publish_written();
  if (!writes_masters && !witness_.saw_step(slots_, inner_)) return;
  note_foreign_step();
}

void OptimizerSlots::publish_foreign_steps() {
  if (is_stepping_) return;
  if (masters_were_written()) {
    publish_written();
  } else if (witness_.saw_master_step(slots_, inner_)) {
    publish_masters();
  } else {
    return;
  }
  note_foreign_step();
}

void OptimizerSlots::note_foreign_steps() {
  if (is_stepping_ || masters_were_written() || !witness_.saw_step(slots_, inner_)) return;
  note_foreign_step();
}

void OptimizerSlots::take_all_writes() {
  take_foreign_steps();
  session_.weights().absorb_values(weights());
  invalidate_casts();
}

void OptimizerSlots::note_foreign_step() {
  invalidate_casts();
  witness_.look(slots_, inner_);
  session_.say_once("bare step",
                    "mezzo: weights were moved outside of step(): by the bare optimizer's step, "
                    "which cannot skip after an overflow, nor cast or copy masters (call step() of "
                    "the handle that initialize returned), or by a write through data() (call "
                    "invalidate_casts() after it)");
}

void OptimizerSlots::note_step() {
  calls_at_step_ = model_calls();
  witness_.look(slots_, inner_);
}

}  // namespace mezzo::amp::detail
