// Where an optimizer is between two steps: inside a scope of `scale_loss`, with gradients that are
// still scaled, with the verdicts of its losses.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "amp/optimizer_gradients.h"
#include "amp/overflow_ranks.h"
#include "amp/session.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// Gradients that are still multiplied by a scale, and by which.
struct StillScaled {
  int loss_id = 0;
  scaling::ScaleValue scale;
  at::Tensor inverse;
  bool delay_overflow_check = false;  // of the block that asked for it
  bool until_step = false;            // `step` unscales (Options::defer_unscale)
  std::int64_t block = 0;             // which scope left them: that of all its optimizers
};

/// Where an optimizer is between two steps.
struct OptimizerProgress {
  bool had_backward = false;   // some scope was left with its backward pass done
  bool had_gradients = false;  // when a loss was judged
  std::optional<StillScaled> still_scaled;
  at::Tensor found_inf;          // what the losses since the last step said; undefined: nothing
  OverflowRanks overflow_ranks;  // ... and of whom
  int loss_id = 0;               // the loss to report
  scaling::ScaleValue scale_before;
  bool scale_known = false;
  bool several_losses = false;  // a device knows which of them overflowed
  bool regardless = false;      // a loss that was not judged (delay_overflow_check)
  bool is_plain = false;        // gradients that no scope judged were looked at by the step
  std::uint64_t capture = 0;    // of the graph that the gradients there belong to; 0: none
};

/// The optimizer's side of the scopes that its losses open.
///
/// A scope of `scale_loss` enters, runs a backward pass that writes fresh gradients, and then
/// leaves in one of three ways: gradients settled (unscaled, checked, added up), still scaled, or
/// undone.
class OptimizerScope {
 public:
  OptimizerScope(Session& session, int index, OptimizerSlots& slots, OptimizerGradients& gradients)
      : session_(session), index_(index), slots_(slots), gradients_(gradients) {}

  bool is_open() const noexcept { return is_open_; }
  const OptimizerProgress& progress() const noexcept { return now_; }
  const std::optional<StillScaled>& still_scaled() const noexcept { return now_.still_scaled; }
  /// With the gradients that are there.
  void set_progress(OptimizerProgress progress);

  /// Errors that a scope's end met are thrown by the next scope or step.
  void keep_error(std::exception_ptr error) { pending_error_ = std::move(error); }
  void throw_kept_error();

  // ---- entrance
  void check_closed(std::string_view where) const;
  /// After `settle_shared`: masters miss nothing of the gradients that are there.
  void check_gradients_at_entry(std::string_view where) const;
  /// Sets gradients aside, so that the backward pass makes fresh ones. Those in a reducer's bucket
  /// stay and get the scale, since the bucket must hold all that is to be averaged; once, where
  /// several optimizers of the scope own a weight: `in_buckets` gathers those that have it.
  void enter(const scaling::LossScaler& scaler, WeightSet& in_buckets);

  // ---- exits
  void leave_scaled(const StillScaled& scaled);
  /// `any` gradient was computed since the scope was entered.
  void leave_settled(bool any);
  void undo();
  /// The exit failed half-way: the scope is over, and no gradient is left of which nobody knows
  /// the scale.
  void abandon();

  // ---- gradients that earlier blocks left scaled
  /// Throws Error if the program wrote gradients that the step will still divide by their scale:
  /// what it wanted of them it did to others. Zeros are gradients that were cleared.
  void check_left_scaled(std::string_view where) const;
  /// An earlier block left gradients scaled, which may be settled outside of a scope.
  bool may_settle() const;
  /// An earlier block than that of this scope left gradients scaled for another loss.
  bool is_scaled_by_another(int loss_id) const;

  // ---- verdicts
  /// The loss's verdict: its flag is not zero where the step must be skipped.
  void judge(int loss_id, const Session::Verdict& verdict, const scaling::ScaleValue& scale_before);
  /// The scale of the loss before it moved; no verdict.
  void note_scale(int loss_id, const scaling::ScaleValue& before);
  /// As above: gradients are stepped by whatever they are.
  void leave_unjudged(int loss_id, const scaling::ScaleValue& before);
  /// Does a loss's verdict, or a scale that its gradients still have, wait for the step?
  bool is_pending() const noexcept { return now_.found_inf.defined() || now_.still_scaled; }
  /// Gradients belong to this capture of a graph from now on; 0: to none.
  void note_capture(std::uint64_t capture) noexcept { now_.capture = capture; }
  /// Were gradients that are there not judged by any scope, as those of a plain backward()?
  bool is_unjudged() const noexcept {
    return !now_.regardless && (!now_.found_inf.defined() || now_.is_plain);
  }
  /// The verdict on those, which have no loss that could be named.
  void judge_plain(const Session::Verdict& verdict);
  /// The loss itself, to be able to say later that it was not a number.
  void note_loss(const at::Tensor& loss) { loss_ = loss; }
  bool loss_is_not_finite() const;
  /// Reads a flag that a device keeps.
  bool must_skip() const;
  /// A fused step looked at scaled gradients itself.
  void note_verdict(const at::Tensor& found_inf, OverflowRanks ranks);

  // ---- clearing
  /// The gradients that overflowed are gone.
  void forget_overflow();
  /// An overflow whose gradients were cleared behind our back, by the network's or the bare
  /// optimizer's zero_grad, skips nothing.
  void forget_overflow_if_cleared();
  /// These weights' gradients were cleared. An overflow whose gradients are all gone skips nothing.
  void forget_cleared(const std::vector<at::Tensor>& weights);
  /// All gradients were cleared.
  void forget_all_cleared();
  /// The step was decided.
  void forget_verdict();

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> scaled_by_others() const;
  void note_left_scaled();

  Session& session_;
  int index_;
  OptimizerSlots& slots_;
  OptimizerGradients& gradients_;
  bool is_open_ = false;
  OptimizerProgress now_;
  std::exception_ptr pending_error_;
  at::Tensor loss_;    // the last one, on hosts
  WeightSet cleared_;  // whose gradients were, one model's after the other's
};

}  // namespace mezzo::amp::detail
