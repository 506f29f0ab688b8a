#include "amp/optimizer_scope.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "amp/gradients.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "bridge/host.h"
#include "core/raise.h"
#include "parallel/agreement.h"
#include "scaling/finite_check.h"
#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

/// Multiplies gradients that lie in buckets.
void rescale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) {
  if (gradients.empty() || (factor.is_cpu() && factor.item<float>() == 1)) return;
  for (const at::Tensor& grad : gradients) {
    const at::Tensor wide = is_low(grad) ? grad.to(at::kFloat) : grad;
    grad.copy_(wide.mul(factor.to(grad.device())));
  }
}

/// Zeros of zero_grad(false) would keep scaled gradients from being stepped in one pass: they stay
/// only if no backward pass has come since.
void leave_zeros(Slot& slot) {
  at::Tensor& grad = slot.weight.mutable_grad();
  if (slot.has_master()) {
    if (!slot.zeros.is_still(slot.master.grad())) return;
    slot.master.mutable_grad().reset();
    if (!grad.defined()) grad = at::zeros_like(slot.weight);
  } else if (slot.zeros.is_still(slot.stash)) {
    if (grad.defined()) {
      slot.stash.reset();
    } else {
      grad = std::exchange(slot.stash, at::Tensor());
    }
  }
}

/// A reduction that an exception broke writes into buckets until it is closed.
void close_broken_backwards(const std::vector<Slot>& slots) {
  try {
    for (const Slot& slot : slots) parallel::close_broken_backward(slot.weight.grad());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next collective says it
  }
}

}  // namespace

void OptimizerScope::set_progress(OptimizerProgress progress) {
  now_ = std::move(progress);
  now_.had_gradients = gradients_.any();
  if (now_.still_scaled) note_left_scaled();
}

void OptimizerScope::note_left_scaled() {
  for (Slot& slot : slots_.all()) slot.left_scaled.note(slot.weight.grad());
}

void OptimizerScope::throw_kept_error() {
  if (pending_error_) std::rethrow_exception(std::exchange(pending_error_, nullptr));
}

void OptimizerScope::check_closed(std::string_view where) const {
  if (!is_open_) return;
  raise(where, "optimizer ", index_,
        " is inside a scale_loss scope already; close the first one, or give both losses one "
        "scope");
}

void OptimizerScope::check_gradients_at_entry(std::string_view where) const {
  if (now_.still_scaled) {
    // A reducer moves gradients between buckets.
    if (!gradients_.in_buckets()) check_left_scaled(where);
    return;
  }
  for (const Slot& slot : slots_.all()) {
    if (slot.has_master() && has_gradient(slot.weight) &&
        !slot.cleared.is_still(slot.weight.grad())) {
      raise(where, "'", slot.entry->name,
            "' has a gradient from a backward pass outside scale_loss, which its master would "
            "miss; call "
            "scale_loss(loss, optimizer).backward() for every loss, and zero_grad() for gradients "
            "that are not wanted");
    }
  }
}

void OptimizerScope::enter(const scaling::LossScaler& scaler, WeightSet& in_buckets) {
  is_open_ = true;
  now_.capture = slots_.capture();
  cleared_.clear();
  const at::NoGradGuard no_grad;
  const auto others = scaled_by_others();
  std::vector<at::Tensor> to_scale;
  for (Slot& slot : slots_.all()) {
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
  const at::Tensor from =
      now_.still_scaled ? now_.still_scaled->inverse : at::ones({}, scaler.inverse().options());
  rescale(to_scale, scaler.multiply(from));
}

/// The weights whose gradients blocks of other optimizers left scaled, and what unscales them.
std::unordered_map<const c10::TensorImpl*, at::Tensor> OptimizerScope::scaled_by_others() const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> scaled;
  for (const auto& other : session_.optimizers()) {
    const auto& still_scaled = other->scope().still_scaled();
    if (&other->scope() == this || !still_scaled) continue;
    for (const Slot& slot : other->slots().all())
      scaled.emplace(slot.weight.unsafeGetTensorImpl(), still_scaled->inverse);
  }
  return scaled;
}

void OptimizerScope::leave_scaled(const StillScaled& scaled) {
  is_open_ = false;
  now_.had_backward = true;
  const at::NoGradGuard no_grad;
  const std::optional<StillScaled>& before = now_.still_scaled;
  // Overflowed gradients are dropped at the step anyway; in the sum they would be laid to this
  // loss.
  const bool is_lost = !now_.still_scaled && must_skip();
  for (Slot& slot : slots_.all()) {
    leave_zeros(slot);
    at::Tensor older = std::exchange(slot.stash, at::Tensor());
    if (!older.defined() || slot.in_bucket || is_lost) continue;
    older = widened(older, slot.master);
    // Gradients that were delayed at another scale are brought to this one first.
    bring_to(older, scaled.scale, before ? &before->scale : nullptr);
    put_gradient(slot.weight, sum_of(older, slot.weight.grad()));
  }
  now_.still_scaled = scaled;
  note_left_scaled();
}

void OptimizerScope::check_left_scaled(std::string_view where) const {
  const std::optional<StillScaled>& scaled = now_.still_scaled;
  if (!scaled || !scaled->until_step) return;
  const bool is_one =
      !scaled->scale.there.defined() && scaling::multiplier(scaled->scale.number) == 1;
  const Slot* const written = is_one ? nullptr : gradients_.written_while_scaled();
  if (written == nullptr) return;
  raise(where, "the gradient of '", session_.name_of(written->weight),
        "' was written while it still has the loss scale (Options::defer_unscale), as by "
        "clip_grad_norm_ over the network's parameters: clip by the optimizer's own max_grad_norm, "
        "or master_params(optimizer), whose gradients are unscaled first");
}

void OptimizerScope::leave_settled(bool any) {
  is_open_ = false;
  now_.had_backward = true;
  now_.still_scaled.reset();
  if (any && slots_.keeps_casts() && slots_.calls_are_missing()) {
    session_.say_once("bare call",
                      "mezzo: gradients arrived, but the model was not called since the last step: "
                      "calls of the bare "
                      "network are not cast; call the handle that initialize returned");
  }
}

void OptimizerScope::undo() {
  is_open_ = false;
  close_broken_backwards(slots_.all());
  for (Slot& slot : slots_.all())
    put_gradient(slot.weight, std::exchange(slot.stash, at::Tensor()));
}

void OptimizerScope::abandon() {
  is_open_ = false;
  now_.still_scaled.reset();
  for (Slot& slot : slots_.all()) slot.stash.reset();
  gradients_.drop();
}

bool OptimizerScope::may_settle() const {
  return now_.still_scaled && !is_open_ && !gradients_.in_buckets();
}

bool OptimizerScope::is_scaled_by_another(int loss_id) const {
  if (!now_.still_scaled || now_.still_scaled->loss_id == loss_id) return false;
  return std::ranges::none_of(slots_.all(), [](const Slot& slot) { return slot.in_bucket; });
}

void OptimizerScope::judge(int loss_id, const Session::Verdict& verdict,
                           const scaling::ScaleValue& scale_before) {
  const at::NoGradGuard no_grad;
  const at::Tensor& found_inf = verdict.found_inf;
  if (!now_.found_inf.defined()) {
    now_.found_inf = found_inf;
  } else {
    now_.found_inf =
        at::maximum(now_.found_inf, scaling::to_device(found_inf, now_.found_inf.device()));
  }
  // The loss that overflowed is the one to report.
  const bool on_host = bridge::is_host(found_inf.device());
  const bool overflowed = !on_host || found_inf.item<float>() != 0;
  now_.several_losses =
      now_.several_losses || (!on_host && now_.scale_known && now_.loss_id != loss_id);
  if (overflowed) now_.overflow_ranks.add(verdict.ranks);
  now_.had_gradients = now_.had_gradients || gradients_.any();
  if (!now_.scale_known || overflowed) note_scale(loss_id, scale_before);
}

void OptimizerScope::note_scale(int loss_id, const scaling::ScaleValue& before) {
  now_.loss_id = loss_id;
  now_.scale_before = before;
  now_.scale_known = true;
}

void OptimizerScope::leave_unjudged(int loss_id, const scaling::ScaleValue& before) {
  note_scale(loss_id, before);
  now_.regardless = true;
}

void OptimizerScope::judge_plain(const Session::Verdict& verdict) {
  note_verdict(verdict.found_inf, verdict.ranks);
  now_.is_plain = true;
}

bool OptimizerScope::loss_is_not_finite() const {
  return loss_.defined() && scaling::first_nonfinite(loss_) == 0;
}

bool OptimizerScope::must_skip() const {
  return now_.found_inf.defined() && now_.found_inf.item<float>() != 0;
}

void OptimizerScope::note_verdict(const at::Tensor& found_inf, OverflowRanks ranks) {
  now_.found_inf = found_inf;
  now_.overflow_ranks = std::move(ranks);
}

void OptimizerScope::forget_overflow() {
  now_.found_inf.reset();
  now_.overflow_ranks = {};
  now_.several_losses = false;
  now_.had_gradients = false;
  now_.regardless = false;
  now_.is_plain = false;
}

void OptimizerScope::forget_overflow_if_cleared() {
  if (now_.found_inf.defined() && now_.had_gradients && !gradients_.any()) forget_overflow();
}

void OptimizerScope::forget_cleared(const std::vector<at::Tensor>& weights) {
  if (!now_.found_inf.defined() && !now_.still_scaled) return;
  for (const at::Tensor& weight : weights) cleared_.insert(weight.unsafeGetTensorImpl());
  if (gradients_.any_beside(cleared_)) return;
  forget_all_cleared();
}

void OptimizerScope::forget_all_cleared() {
  now_.still_scaled.reset();
  cleared_.clear();
  forget_overflow();
}

void OptimizerScope::forget_verdict() {
  forget_overflow();
  loss_.reset();
  cleared_.clear();
  now_.scale_known = false;
}

}  // namespace mezzo::amp::detail
