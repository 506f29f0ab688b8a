// The decision to step, and what follows from it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/settle.h"
#include "core/raise.h"
#include "scaling/finite_check.h"

namespace mezzo::detail {
namespace {

constexpr std::string_view kWhere = "step";

}  // namespace

std::shared_ptr<const StepRecord> OptimizerState::step() {
  if (!session_.enabled()) {
    run_inner();
    count_applied();
    return std::make_shared<StepRecord>();
  }
  check_step();
  check_gradients();
  if (can_step_scaled()) return step_scaled();
  settle_deferred();
  if (device_decides()) return step_by_flag();
  if (must_skip()) return finish(false);
  run_inner();
  return finish(true);
}

void OptimizerState::run_inner(const torch::optim::Optimizer::LossClosure& closure) {
  if (fused_) {
    fused_->step(slots_, keeps_casts(), closure);
    return;
  }
  if (ref_.step) {
    ref_.step(closure);
  } else {
    inner().step(closure);
  }
  publish_masters();
}

std::vector<at::Tensor> OptimizerState::weight_gradients() const {
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) gradients.push_back(slot.weight.grad());
  return gradients;
}

/// One pass over memory: all gradients carry the same scale, and nothing was settled before.
bool OptimizerState::can_step_scaled() const {
  if (!fused_ || !now_.still_scaled || now_.still_scaled->delay_overflow_check) return false;
  if (!session_.plan().check_finite || now_.found_inf.defined()) return false;
  // The kernels take the inverse scale as float, which is not exact enough for these doubles.
  const scaling::ScaleValue& scale = now_.still_scaled->scale;
  const double inverse = 1.0 / scaling::multiplier(scale.number);
  const bool is_float = !scale.there.defined() && inverse == static_cast<float>(inverse);
  for (const Slot& slot : slots_) {
    if (slot.has_master() && slot.master.grad().defined()) return false;
    const at::Tensor& grad = slot.weight.grad();
    if (!grad.defined()) continue;
    if (grad.is_sparse() || grad.requires_grad()) return false;
    if (!is_float && grad.scalar_type() == at::kDouble) return false;
  }
  return true;
}

std::shared_ptr<const StepRecord> OptimizerState::step_scaled() {
  const StillScaled scaled = *now_.still_scaled;
  scaling::LossScaler& scaler = session_.scaler(scaled.loss_id, kWhere);
  at::Tensor found_inf = at::zeros({}, scaled.inverse.options().dtype(at::kFloat));
  const auto weight_of = [this](std::size_t i) -> const at::Tensor& { return slots_[i].weight; };
  const auto agree = [&](at::Tensor& flag) {
    const Session::Verdict verdict = session_.agree(flag, weight_gradients(), weight_of);
    flag.copy_(verdict.found_inf);
    now_.overflow_ranks = verdict.ranks;
  };
  fused_->step_scaled(slots_, keeps_casts(), found_inf, scaled.inverse, agree);
  scaler.update(found_inf);
  leave_settled(/*any=*/true);
  now_.found_inf = found_inf;
  note_scale(scaled.loss_id, scaled.scale);
  auto record = device_decides() ? finish_undecided() : finish(!must_skip());
  // They were scaled, and nothing may be outside of a scope.
  drop_gradients();
  return record;
}

void OptimizerState::leave_settled(bool any) {
  in_scope_ = false;
  now_.had_backward = true;
  now_.still_scaled.reset();
  if (any && keeps_casts() && !models_.empty() && model_calls() == calls_at_step_) {
    session_.say_once("bare call",
                      "mezzo: gradients arrived, but the model was not called since the last step: "
                      "calls of the bare "
                      "network are not cast; call the handle that initialize returned");
  }
}

void OptimizerState::take_foreign_steps() {
  if (is_stepping_) return;
  bool writes_masters = false;
  for (const Slot& slot : slots_) {
    writes_masters =
        writes_masters || (slot.has_master() && WeightTable::master_was_written(*slot.entry));
  }
  if (writes_masters) publish_masters();
  if (!writes_masters && !witness_.saw_step(slots_, inner())) return;
  invalidate_casts();
  witness_.look(slots_, inner());
  session_.say_once("bare step",
                    "mezzo: weights were moved outside of step(): by the bare optimizer's step, "
                    "which cannot skip after an overflow, nor cast or copy masters (call step() of "
                    "the handle that initialize returned), or by a write through data() (call "
                    "invalidate_casts() after it)");
}

void OptimizerState::check_step() {
  if (pending_error_) std::rethrow_exception(std::exchange(pending_error_, nullptr));
  if (in_scope_)
    raise(kWhere, "optimizer ", index_, " is still inside a scale_loss scope; leave it first");
  leave_gradients_behind();
  hear(/*waits=*/false);
  if (now_.still_scaled && !now_.still_scaled->until_step) {
    raise(kWhere,
          "gradients are still scaled: the last scale_loss had delay_unscale; run one block "
          "without it "
          "before the step");
  }
  for (const auto& other : session_.optimizers()) {
    const auto& scaled = other->still_scaled();
    if (other.get() == this || !scaled || scaled->until_step || !shares_weights(*other)) continue;
    raise(
        kWhere, "optimizer ", other->index(),
        " owns some of these parameters as well, and its last scale_loss had delay_unscale: their "
        "gradients are still scaled; run one block without it before the step");
  }
  session_.weights().absorb();
  sync();
  take_foreign_steps();
}

void OptimizerState::check_gradients() {
  const Slot* missed = now_.still_scaled ? nullptr : missed_by_master();
  if (missed != nullptr) {
    raise(kWhere, "'", missed->entry->name,
          "' has a gradient from a plain backward(), or from the scope of another optimizer, which "
          "its float master would miss; at ",
          session_.plan().properties.opt_level,
          " every loss goes through scale_loss(loss, optimizer).backward()");
  }
  bool any = false;
  for (const Slot& slot : slots_) {
    any = any || slot.master.grad().defined() || slot.weight.grad().defined();
  }
  const Plan& plan = session_.plan();
  const bool scales = plan.scale_rules.dynamic || plan.first_scale != 1.0;
  if (now_.had_backward) return;
  if (!any && (scales || plan.masters)) {
    raise(kWhere, "optimizer ", index_,
          " has no gradients yet; call scale_loss(loss, optimizer).backward() before step()");
  }
  if (any && plan.scale_rules.dynamic) {
    session_.say_once("plain backward",
                      "mezzo: gradients came from a plain backward(): they are not scaled, and "
                      "small ones may have "
                      "vanished; scale_loss(loss, optimizer).backward() keeps them");
  }
}

void OptimizerState::settle_deferred() {
  if (!now_.still_scaled) return;
  settle_left_scaled({this}, session_);
}

void OptimizerState::decide_without_step() {
  if (must_skip()) {
    finish(false);
    return;
  }
  forget_overflow();
  now_.scale_known = false;
  loss_.reset();
}

bool OptimizerState::must_skip() const {
  return now_.found_inf.defined() && now_.found_inf.item<float>() != 0;
}

std::string OptimizerState::overflow_reason() {
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    gradients.push_back(slot.master.grad().defined() ? slot.master.grad() : slot.weight.grad());
  }
  const std::size_t first = scaling::first_nonfinite(gradients);
  std::string text = "loss " + std::to_string(now_.loss_id);
  if (loss_.defined() && scaling::first_nonfinite(loss_) == 0) {
    text += " is not a finite number";
  } else {
    text += " gave a gradient that is not finite";
  }
  text += now_.overflow_ranks.describe();
  std::string name = now_.overflow_ranks.parameter();
  if (name.empty() && first < slots_.size()) name = session_.name_of(slots_[first].weight);
  return name.empty() ? text : text + ", first in '" + name + "'";
}

std::shared_ptr<const StepRecord> OptimizerState::finish(bool applied) {
  auto record = std::make_shared<StepRecord>();
  record->applied = applied;
  record->scale_after = session_.scaler(now_.loss_id, kWhere).value();
  record->scale_before = now_.scale_known ? now_.scale_before : record->scale_after;
  if (applied) {
    count_applied();
    stuck_.erase(now_.loss_id);
    fused_ ? fused_->keep_casts() : refresh_casts();
    tell_silent_parameters(applied_);
  } else {
    ++skipped_;
    record->reason = overflow_reason();
    if (loss_.defined() && scaling::first_nonfinite(loss_) == 0) {
      session_.say_once("nan loss", "mezzo: " + record->reason + ": the step is skipped");
    }
    snapshot_.give_back();
    drop_gradients();
  }
  end_step();
  tell_step(*record);
  if (!applied) check_exhausted(record->reason);
  return record;
}

void OptimizerState::end_step() {
  snapshot_.forget();
  calls_at_step_ = model_calls();
  forget_overflow();
  loss_.reset();
  cleared_.clear();
  now_.scale_known = false;
  witness_.look(slots_, inner());
}

void OptimizerState::tell_step(const StepRecord& record) {
  if (record.applied || session_.options().verbosity < 1) return;
  std::string text = "mezzo: step skipped: " + record.reason;
  const double before = record.scale_before.read();
  const double after = record.scale_after.read();
  if (after != before) {
    text += c10::str("; loss scale ", before, " -> ", after);
  } else if (!session_.plan().scale_rules.dynamic) {
    text += "; the scale is static (Apex would have made this step)";
  }
  session_.say(text);
}

void OptimizerState::check_exhausted(const std::string& reason) {
  const scaling::LossScaler& scaler = session_.scaler(now_.loss_id, kWhere);
  if (!scaling::exhausted(scaler.state(), scaler.rules())) return;
  raise(kWhere, scaler.state().stuck_at_floor,
        " steps in a row were skipped with the loss scale at its floor of ", scaler.state().scale,
        ": the training has diverged, scaling cannot help; ", reason);
}

/// `steps`: how many were taken, this one included.
void OptimizerState::tell_silent_parameters(std::int64_t steps) {
  if (steps != 1) return;
  std::string names;
  int count = 0;
  for (const Slot& slot : slots_) {
    if (slot.master.grad().defined() || !slot.weight.requires_grad()) continue;
    if (++count <= 3) names += (names.empty() ? "'" : ", '") + session_.name_of(slot.weight) + "'";
  }
  if (count == 0) return;
  session_.say_once("silent", c10::str("mezzo: ", count, count == 1 ? " parameter" : " parameters",
                                       " got no gradient before the first step: ", names,
                                       count > 3 ? ", ..." : ""));
}

}  // namespace mezzo::detail
