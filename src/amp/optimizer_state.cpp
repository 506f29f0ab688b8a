#include "amp/optimizer_state.h"

#include <utility>

#include "amp/shown_gradients.h"

namespace mezzo::amp::detail {
namespace {

std::shared_ptr<FusedStep> attached_step(const Session& session, const OptimizerRef& ref) {
  if (!session.enabled() || ref.step) return nullptr;
  std::shared_ptr<FusedStep> fused = FusedStep::of(*ref.inner);
  if (fused) FusedStep::attach(fused);
  return fused;
}

}  // namespace

OptimizerState::OptimizerState(Session& session, OptimizerRef ref, int index)
    : session_(session),
      inner_(*ref.inner),
      index_(index),
      snapshot_(session.options().protect_rng),
      fused_(attached_step(session, ref)),
      slots_(session, inner_, snapshot_, /*takes_low_gradients=*/fused_ != nullptr),
      gradients_(slots_),
      scope_(session, index, slots_, gradients_),
      steps_(*this, std::move(ref), fused_),
      rank_check_(session) {}

void OptimizerState::check_entry(std::string_view where) {
  scope_.check_closed(where);
  scope_.throw_kept_error();
  steps_.check_capture(where, CapturePoint::kScope);
  slots_.sync();
  slots_.note_foreign_steps();
  scope_.forget_overflow_if_cleared();
}

void OptimizerState::enter_scope(const scaling::LossScaler& scaler, WeightSet& in_buckets) {
  for (const auto& other : session_.optimizers()) {
    if (other->steps().has_undecided_gradients() && other->slots().shares_weights(slots_))
      other->steps().leave_gradients_behind();
  }
  scope_.enter(scaler, in_buckets);
}

void OptimizerState::zero_grad(bool set_to_none) {
  if (!session_.enabled()) {
    inner_.zero_grad(set_to_none);
    return;
  }
  const HiddenGradients hidden(session_);
  slots_.sync();
  gradients_.clear(set_to_none);
  scope_.forget_all_cleared();
  note_cleared();
}

void OptimizerState::note_cleared() {
  steps_.forget_undecided_gradients();
  scope_.note_capture(slots_.capture());
}

void OptimizerState::clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none) {
  if (scope_.is_open()) gradients_.clear_stashes(weights, set_to_none);
}

void OptimizerState::leave_buckets() {
  if (!scope_.still_scaled()) gradients_.leave_buckets();
}

void OptimizerState::restore() {
  steps_.leave_gradients_behind();
  steps_.detach();
  slots_.restore();
}

}  // namespace mezzo::amp::detail
