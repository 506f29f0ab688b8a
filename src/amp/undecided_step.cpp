// Steps whose device decides whether they are taken: the host goes on, and hears of it at the next.
#include <utility>

#include "amp/optimizer_state.h"
#include "amp/optimizer_step.h"
#include "bridge/device.h"
#include "bridge/host.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

std::shared_ptr<StepRecord> undecided_record(const OptimizerProgress& now,
                                             const scaling::LossScaler& scaler) {
  auto record = std::make_shared<StepRecord>();
  record->found_inf = now.found_inf;
  record->reason = now.is_plain
                       ? "a gradient is not finite"
                       : (now.several_losses ? "a loss" : "loss " + std::to_string(now.loss_id)) +
                             " gave a gradient that is not finite";
  record->ranks = now.overflow_ranks;
  record->scale_after = scaler.value();
  record->scale_before = now.scale_known ? now.scale_before : record->scale_after;
  return record;
}

}  // namespace

bool OptimizerStep::device_decides() const {
  const OptimizerProgress& now = scope_.progress();
  if (!fused_ || !now.found_inf.defined()) return false;
  const at::Device device = now.found_inf.device();
  // Without kernels the host reads the flag in any case.
  if (bridge::is_host(device) || !bridge::has_kernels(device)) return false;
  // Generators are given back by the host, which must know at once.
  if (snapshot_.with_generators()) return false;
  if (capturing_) return true;
  // The last overflow that is accepted may not have been heard of. One more is an error that names
  // a parameter, whose gradient must still be there.
  const std::int64_t patience = session_.plan().scale_rules.patience;
  const auto stuck = stuck_.find(now.loss_id);
  return patience == 0 || (stuck == stuck_.end() ? 0 : stuck->second) + 2 < patience;
}

std::shared_ptr<const StepRecord> OptimizerStep::step_by_flag() {
  fused_->step_unless(slots_.all(), slots_.keeps_casts(), scope_.progress().found_inf);
  undecided_gradients_ = !capturing_;
  return finish_undecided();
}

std::shared_ptr<const StepRecord> OptimizerStep::finish_undecided() {
  if (capturing_) return finish_captured();
  make_room_for_captures();
  const OptimizerProgress& now = scope_.progress();
  const scaling::LossScaler& scaler = session_.scaler(now.loss_id, "step");
  auto record = undecided_record(now, scaler);
  Decision known;
  known.loss_id = now.loss_id;
  known.reason = record->reason;
  known.ranks = record->ranks;
  decisions_.note(std::move(known), now.found_inf, record->scale_before, record->scale_after,
                  scaler.stuck());
  snapshot_.give_back_if(now.found_inf);
  // Where nothing moved, the copies are still those of the weights.
  fused_->keep_casts();
  tell_silent_parameters(applied_ + decisions_.open());
  last_ = record;
  end();
  // The step before this has long been decided, unless the host is a whole step ahead: then the
  // device has this one's passes to work on while the host waits.
  while (decisions_.open() > 1) take(*decisions_.next(/*waits=*/true));
  return record;
}

std::shared_ptr<const StepRecord> OptimizerStep::finish_captured() {
  const OptimizerProgress& now = scope_.progress();
  auto record = undecided_record(now, session_.scaler(now.loss_id, "step"));
  if (now.found_inf.defined()) snapshot_.give_back_if(now.found_inf);
  captured_.count(now.found_inf);
  fused_->keep_casts();
  last_ = record;
  end();
  return record;
}

void OptimizerStep::hear(bool waits) {
  while (const std::optional<Decision> decision = decisions_.next(waits)) take(*decision);
}

void OptimizerStep::take(const Decision& decision) {
  bool left_gradients = false;
  if (decisions_.open() == 0) left_gradients = std::exchange(undecided_gradients_, false);
  stuck_[decision.loss_id] = decision.stuck;
  if (decision.applied) {
    count_applied();
    return;
  }
  ++skipped_;
  if (left_gradients) gradients_.drop();
  StepRecord record;
  record.applied = false;
  record.reason = decision.reason + decision.ranks.describe() + explanation(/*at_once=*/false);
  record.scale_before.number = decision.scale_before;
  record.scale_after.number = decision.scale_after;
  tell_step(record);
}

void OptimizerStep::leave_gradients_behind() {
  if (!undecided_gradients_) return;
  if (gradients_.any_outside_scopes()) hear(/*waits=*/true);
  undecided_gradients_ = false;
}

/// Counts are not known before the replays, and waiting would break the capture.
void OptimizerStep::refuse_counts_in_capture() const {
  if (slots_.capture() == 0) return;
  raise("optimizer",
        "the counts of steps were asked for while a graph is captured: ask before the capture or "
        "after a replay");
}

std::int64_t OptimizerStep::applied_steps() {
  refuse_counts_in_capture();
  hear(/*waits=*/true);
  return applied_ + captured_.read().applied;
}

std::int64_t OptimizerStep::skipped_steps() {
  refuse_counts_in_capture();
  hear(/*waits=*/true);
  return skipped_ + captured_.read().skipped;
}

std::int64_t OptimizerStep::steps_made() {
  refuse_counts_in_capture();
  hear(/*waits=*/false);
  return made_ + decisions_.open() + captured_.read().applied;
}

std::int64_t OptimizerStep::steps_skipped() {
  refuse_counts_in_capture();
  hear(/*waits=*/false);
  return skipped_ + captured_.read().skipped;
}

void OptimizerStep::set_steps(std::int64_t applied, std::int64_t skipped) {
  refuse_counts_in_capture();
  owner_.first_magnitudes().forget();
  hear(/*waits=*/true);
  const CapturedCounts::Counts captured = captured_.read();
  applied_ = applied - captured.applied;
  skipped_ = skipped - captured.skipped;
}

}  // namespace mezzo::amp::detail
