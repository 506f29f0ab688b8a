#include "amp/optimizer_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "amp/gradients.h"
#include "amp/optimizer_state.h"
#include "amp/settle.h"
#include "amp/shared_flag.h"
#include "amp/shown_gradients.h"
#include "core/raise.h"
#include "scaling/finite_check.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInOptimizerStep = "step";
constexpr const char* kNoGradient = "no parameter has a gradient";

bool has_gradients(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (std::ranges::any_of(group.params(),
                            [](const at::Tensor& parameter) { return parameter.grad().defined(); }))
      return true;
  }
  return false;
}

}  // namespace

OptimizerStep::OptimizerStep(OptimizerState& owner, OptimizerRef ref,
                             std::shared_ptr<FusedStep> fused)
    : owner_(owner),
      session_(owner.session()),
      slots_(owner.slots()),
      gradients_(owner.gradients()),
      scope_(owner.scope()),
      snapshot_(owner.snapshot()),
      ref_(std::move(ref)),
      fused_(std::move(fused)) {}

void OptimizerStep::detach() {
  if (fused_) fused_->detach();
}

std::shared_ptr<const StepRecord> OptimizerStep::run() {
  if (!session_.enabled()) {
    run_inner();
    return finish_disabled();
  }
  check_capture(kInOptimizerStep, CapturePoint::kStep);
  capturing_ = slots_.capture() != 0;
  const HiddenGradients hidden(session_);
  check();
  check_gradients();
  const bool empty = !gradients_.any_outside_scopes();
  if (!empty && can_step_scaled()) return step_scaled();
  settle_deferred();
  look_at_plain_gradients();
  if (empty) return !capturing_ && scope_.must_skip() ? finish(false) : finish_empty();
  if (device_decides()) return step_by_flag();
  if (!capturing_ && scope_.must_skip()) return finish(false);
  run_inner();
  if (capturing_) return finish_captured();
  return finish(true);
}

void OptimizerStep::run_inner(const torch::optim::Optimizer::LossClosure& closure) {
  if (fused_) {
    fused_->step(slots_.all(), slots_.keeps_casts(), closure);
    return;
  }
  if (ref_.step) {
    ref_.step(closure);
  } else {
    ref_.inner->step(closure);
  }
  slots_.publish_masters();
}

/// One pass over memory: all gradients carry the same scale, and nothing was settled before.
bool OptimizerStep::can_step_scaled() const {
  if (!fused_ || !scope_.still_scaled() || scope_.still_scaled()->delay_overflow_check)
    return false;
  if (!session_.plan().check_finite || scope_.progress().found_inf.defined()) return false;
  // The kernels take the inverse scale as float, which is not exact enough for these doubles.
  const scaling::ScaleValue& scale = scope_.still_scaled()->scale;
  const double inverse = 1.0 / scaling::multiplier(scale.number);
  const bool is_float = !scale.there.defined() && inverse == static_cast<float>(inverse);
  for (const Slot& slot : slots_.all()) {
    if (slot.has_master() && slot.master.grad().defined()) return false;
    const at::Tensor& grad = slot.weight.grad();
    if (!grad.defined()) continue;
    if (grad.is_sparse() || grad.requires_grad()) return false;
    if (!is_float && grad.scalar_type() == at::kDouble) return false;
  }
  return true;
}

std::shared_ptr<const StepRecord> OptimizerStep::step_scaled() {
  const StillScaled scaled = *scope_.still_scaled();
  scaling::LossScaler& scaler = session_.scaler(scaled.loss_id, kInOptimizerStep);
  at::Tensor found_inf = at::zeros({}, scaled.inverse.options().dtype(at::kFloat));
  const auto weight_of = [this](std::size_t i) -> const at::Tensor& {
    return slots_.all()[i].weight;
  };
  OverflowRanks ranks;
  const auto agree = [&](at::Tensor& flag) {
    const std::vector<at::Tensor> gradients = gradients_.of_weights();
    const Session::Verdict verdict =
        SharedFlag(session_, flag, gradients, gradients, weight_of).wait();
    flag.copy_(verdict.found_inf);
    ranks = verdict.ranks;
  };
  fused_->step_scaled(slots_.all(), slots_.keeps_casts(), found_inf, scaled.inverse, agree);
  scaler.update(found_inf);
  scope_.leave_settled(/*any=*/true);
  scope_.note_verdict(found_inf, std::move(ranks));
  scope_.note_scale(scaled.loss_id, scaled.scale);
  auto record = device_decides() ? finish_undecided() : finish(!scope_.must_skip());
  // They were scaled, and nothing may be outside of a scope.
  gradients_.drop();
  return record;
}

/// A loop without Mezzo has the same schedules as one with it.
std::shared_ptr<const StepRecord> OptimizerStep::finish_disabled() {
  const bool empty = !has_gradients(*ref_.inner);
  auto record = std::make_shared<StepRecord>();
  record->applied = !empty;
  record->empty = empty;
  if (empty) {
    record->reason = kNoGradient;
    ++empty_;
  } else {
    count_applied();
  }
  return record;
}

void OptimizerStep::check() {
  scope_.throw_kept_error();
  if (scope_.is_open()) {
    raise(kInOptimizerStep, "optimizer ", owner_.index(),
          " is still inside a scale_loss scope; leave it first");
  }
  if (!capturing_) {
    leave_gradients_behind();
    hear(/*waits=*/false);
  }
  if (scope_.still_scaled() && !scope_.still_scaled()->until_step) {
    raise(kInOptimizerStep,
          "gradients are still scaled: the last scale_loss had delay_unscale; run one block "
          "without it "
          "before the step");
  }
  scope_.check_left_scaled(kInOptimizerStep);
  for (const auto& other : session_.optimizers()) {
    const auto& scaled = other->scope().still_scaled();
    if (other.get() == &owner_ || !scaled || scaled->until_step) continue;
    if (!slots_.shares_weights(other->slots())) continue;
    raise(
        kInOptimizerStep, "optimizer ", other->index(),
        " owns some of these parameters as well, and its last scale_loss had delay_unscale: their "
        "gradients are still scaled; run one block without it before the step");
  }
  session_.weights().absorb();
  slots_.sync();
  slots_.take_foreign_steps();
  owner_.first_magnitudes().note(slots_.all());
}

void OptimizerStep::check_gradients() {
  const Slot* missed = scope_.still_scaled() ? nullptr : gradients_.missed_by_master();
  if (missed != nullptr) {
    raise(kInOptimizerStep, "'", missed->entry->name,
          "' has a gradient from a plain backward(), or from the scope of another optimizer, which "
          "its float master would miss; at ",
          session_.plan().properties.opt_level,
          " every loss goes through scale_loss(loss, optimizer).backward()");
  }
  if (scope_.progress().had_backward || !session_.plan().scale_rules.dynamic) return;
  if (gradients_.any_outside_scopes()) {
    session_.say_once("plain backward",
                      "mezzo: gradients came from a plain backward(): they are not scaled, and "
                      "small ones may have "
                      "vanished; scale_loss(loss, optimizer).backward() keeps them");
  }
}

/// Gradients that no scope judged, as those of a plain backward(). A rank without gradients takes
/// part as well, since others have some.
void OptimizerStep::look_at_plain_gradients() {
  if (!session_.plan().check_finite || !scope_.is_unjudged()) return;
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_.to_step_by();
  const auto first = std::ranges::find_if(gradients, &at::Tensor::defined);
  const at::Device device = first == gradients.end() ? at::Device(at::kCPU) : first->device();
  at::Tensor found_inf = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  scaling::check_finite(gradients, found_inf);
  const auto weight_of = [this](std::size_t i) -> const at::Tensor& {
    return slots_.all()[i].weight;
  };
  scope_.judge_plain(
      SharedFlag(session_, found_inf, gradients_.of_weights(), gradients, weight_of).wait());
}

void OptimizerStep::settle_deferred() {
  if (!scope_.still_scaled()) return;
  settle_left_scaled({&owner_}, session_);
}

void OptimizerStep::unscale_for_program() {
  if (!session_.enabled() || scope_.is_open()) return;
  if (!scope_.still_scaled() || !scope_.still_scaled()->until_step) return;
  if (gradients_.wait_for_reduction()) return;
  const HiddenGradients hidden(session_);
  scope_.check_left_scaled("master_params");
  settle_deferred();
}

void OptimizerStep::decide_without_step() {
  if (slots_.capture() != 0) {
    raise(kInOptimizerStep, "a graph is being captured, and optimizer ", owner_.index(),
          " is stepped by the program, whom the host tells whether to: step outside of the graph");
  }
  if (scope_.must_skip()) {
    finish(false);
    return;
  }
  scope_.forget_verdict();
}

std::string OptimizerStep::overflow_reason() const {
  const OptimizerProgress& now = scope_.progress();
  const std::size_t first = scaling::first_nonfinite(gradients_.to_step_by());
  std::string text = "a gradient is not finite";
  if (!now.is_plain) {
    text = "loss " + std::to_string(now.loss_id);
    text += scope_.loss_is_not_finite() ? " is not a finite number"
                                        : " gave a gradient that is not finite";
  }
  text += now.overflow_ranks.describe();
  std::string name = now.overflow_ranks.parameter();
  const std::vector<Slot>& slots = slots_.all();
  if (name.empty() && first < slots.size()) name = session_.name_of(slots[first].weight);
  return name.empty() ? text : text + ", first in '" + name + "'";
}

std::shared_ptr<const StepRecord> OptimizerStep::finish(bool applied) {
  const OptimizerProgress& now = scope_.progress();
  make_room_for_captures();
  auto record = std::make_shared<StepRecord>();
  record->applied = applied;
  record->scale_after = session_.scaler(now.loss_id, kInOptimizerStep).value();
  record->scale_before = now.scale_known ? now.scale_before : record->scale_after;
  if (applied) {
    count_applied();
    stuck_.erase(now.loss_id);
    fused_ ? fused_->keep_casts() : slots_.refresh_casts();
    slots_.note_cast_values();
    tell_silent_parameters(applied_);
  } else {
    ++skipped_;
    record->reason = overflow_reason();
    if (scope_.loss_is_not_finite()) {
      session_.say_once("nan loss", "mezzo: " + record->reason + ": the step is skipped");
    }
    snapshot_.give_back();
    gradients_.drop();
    record->reason += explanation(/*at_once=*/true);
  }
  last_ = record;
  end();
  tell_step(*record);
  if (!applied) check_exhausted(record->reason);
  return record;
}

std::shared_ptr<const StepRecord> OptimizerStep::finish_empty() {
  const OptimizerProgress& now = scope_.progress();
  auto record = std::make_shared<StepRecord>();
  record->applied = false;
  record->empty = true;
  record->reason = kNoGradient;
  record->scale_after = session_.scaler(now.loss_id, kInOptimizerStep).value();
  record->scale_before = now.scale_known ? now.scale_before : record->scale_after;
  if (!capturing_) ++empty_;
  session_.say_once("empty step",
                    c10::str("mezzo: optimizer ", owner_.index(),
                             " had no gradients: its step moved nothing, and counts neither as "
                             "made nor as skipped; scale_loss(loss, optimizer).backward() makes "
                             "gradients"));
  last_ = record;
  end();
  return record;
}

void OptimizerStep::end() {
  snapshot_.forget();
  scope_.forget_verdict();
  // A captured step stepped masters as they were: they stay so.
  if (!capturing_) slots_.split_masters();
  slots_.note_step();
}

void OptimizerStep::tell_step(const StepRecord& record) {
  if (record.applied || session_.options().verbosity < 1) return;
  std::string text = "mezzo: step skipped: " + record.reason;
  const double before = record.scale_before.read();
  const double after = record.scale_after.read();
  if (after != before) {
    text += c10::str("; loss scale ", before, " -> ", after);
  } else if (session_.scaler(0, kInOptimizerStep).is_one()) {
    text += "; the loss has no scale that could fall";
  } else if (!session_.plan().scale_rules.dynamic) {
    text += "; the scale is static (Apex would have made this step)";
  }
  session_.say(text);
}

void OptimizerStep::check_exhausted(const std::string& reason) {
  const scaling::LossScaler& scaler = session_.scaler(scope_.progress().loss_id, kInOptimizerStep);
  if (!scaling::exhausted(scaler.state(), scaler.rules())) return;
  raise(kInOptimizerStep, scaler.state().stuck_at_floor,
        " steps in a row were skipped with the loss scale at its floor of ", scaler.state().scale,
        ": the training has diverged, scaling cannot help; ", reason);
}

/// `steps`: how many were taken, this one included.
void OptimizerStep::tell_silent_parameters(std::int64_t steps) {
  if (steps != 1) return;
  std::string names;
  int count = 0;
  for (const Slot& slot : slots_.all()) {
    // Gradients that were stepped as they came, with their scale, are still with the weights.
    if (slot.master.grad().defined() || has_gradient(slot.weight) || !slot.weight.requires_grad())
      continue;
    if (++count <= 3) names += (names.empty() ? "'" : ", '") + session_.name_of(slot.weight) + "'";
  }
  if (count == 0) return;
  session_.say_once("silent", c10::str("mezzo: ", count, count == 1 ? " parameter" : " parameters",
                                       " got no gradient before the first step: ", names,
                                       count > 3 ? ", ..." : ""));
}

}  // namespace mezzo::amp::detail
