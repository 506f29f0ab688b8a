// The decision to step, and what follows from it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "amp/captured_counts.h"
#include "amp/decisions.h"
#include "amp/fused_step.h"
#include "amp/optimizer_scope.h"
#include "amp/snapshot.h"
#include "amp/step_record.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// Where a capture is looked for: a loss's scope is entered, or a step begins.
enum class CapturePoint { kScope, kStep };

/// Steps an optimizer or skips it, on the host or by a flag that a device keeps, and counts both.
class OptimizerStep {
 public:
  /// `fused` is null for LibTorch's own optimizers, and for wrappers around an optimizer.
  OptimizerStep(OptimizerState& owner, OptimizerRef ref, std::shared_ptr<FusedStep> fused);

  std::shared_ptr<const StepRecord> run();
  std::shared_ptr<const StepRecord> run(const torch::optim::Optimizer::LossClosure& closure);

  /// Throws Error from `where` if a graph is being captured and could not hold a step of this
  /// optimizer, or if losses of the step were captured and the step is not: nothing has changed
  /// then. See Note [Captured steps].
  void check_capture(std::string_view where, CapturePoint point);

  /// Gradients that were left scaled are unscaled, checked and added up; nothing if none are.
  void settle_deferred();
  /// As above, for a program that is about to look at gradients and to change them. Not inside a
  /// scope, nor where a later block is to unscale them.
  void unscale_for_program();
  /// For callers who step the inner optimizer themselves: after an overflow gradients are dropped,
  /// so that their step moves nothing.
  void decide_without_step();

  /// Clears the rest of a skipped step, which would spoil the sum of the next gradients.
  void leave_gradients_behind();
  /// May gradients of a step that a device has not reported yet still be there?
  bool has_undecided_gradients() const noexcept { return undecided_gradients_; }
  /// They were cleared.
  void forget_undecided_gradients() noexcept { undecided_gradients_ = false; }

  /// The last decision; null before the first.
  const std::shared_ptr<const StepRecord>& last() const noexcept { return last_; }

  /// Exact: they wait for decisions that are still on a device.
  std::int64_t applied_steps();
  std::int64_t skipped_steps();
  /// Steps that had no gradients.
  std::int64_t empty_steps() const noexcept { return empty_; }
  /// Steps that moved weights since `initialize`, whatever was loaded since. The last one, where a
  /// device has not reported it yet, counts as taken until it reports otherwise.
  std::int64_t steps_made();
  /// Skipped steps that the host has heard of.
  std::int64_t steps_skipped();
  void set_steps(std::int64_t applied, std::int64_t skipped);

  /// The inner optimizer has its own ways again.
  void detach();

 private:
  class ClosureRun;

  void count_applied() noexcept {
    ++applied_;
    ++made_;
  }
  void check();
  void check_gradients();
  void look_at_plain_gradients();
  void run_inner(const torch::optim::Optimizer::LossClosure& closure = nullptr);
  bool can_step_scaled() const;
  std::shared_ptr<const StepRecord> step_scaled();
  bool device_decides() const;
  std::shared_ptr<const StepRecord> step_by_flag();
  std::shared_ptr<const StepRecord> finish_undecided();
  std::string why_not_captured(std::uint64_t capture, CapturePoint point) const;
  std::shared_ptr<const StepRecord> finish_captured();
  void make_room_for_captures();
  void hear(bool waits);
  void refuse_counts_in_capture() const;
  void take(const Decision& decision);
  std::shared_ptr<const StepRecord> finish(bool applied);
  std::shared_ptr<const StepRecord> finish_empty();
  std::shared_ptr<const StepRecord> finish_disabled();
  void end();
  std::string overflow_reason() const;
  /// The text behind the reason of a skipped step while such are to be explained. `at_once`: it
  /// was skipped just now, and the gradients are gone.
  std::string explanation(bool at_once);
  void tell_step(const StepRecord& record);
  void check_exhausted(const std::string& reason);
  void tell_silent_parameters(std::int64_t steps);

  OptimizerState& owner_;
  Session& session_;
  OptimizerSlots& slots_;
  OptimizerGradients& gradients_;
  OptimizerScope& scope_;
  Snapshot& snapshot_;
  OptimizerRef ref_;
  std::shared_ptr<FusedStep> fused_;

  // Note [Captured steps]: while a graph is captured, nothing of a step runs. The device decides in
  // each replay, moves the scale, and counts the step in `captured_`; the host's counters stay, and
  // what asks for numbers adds both up. Events of earlier steps are left alone: CUDA refuses to be
  // asked for them.
  bool capturing_ = false;  // the step that is made now is captured
  CapturedCounts captured_;

  Decisions decisions_;                // of devices, that the host has not heard of yet
  bool undecided_gradients_ = false;   // those of the last of them are still there
  std::map<int, std::int64_t> stuck_;  // each loss's overflows in a row at the floor, as heard of

  std::shared_ptr<const StepRecord> last_;
  std::int64_t applied_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t empty_ = 0;
  std::int64_t made_ = 0;
};

}  // namespace mezzo::amp::detail
