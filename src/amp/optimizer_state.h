// What stands behind an Optimizer handle: its parameters, their masters and gradients, and the
// decision to step.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "amp/decisions.h"
#include "amp/fused_step.h"
#include "amp/session.h"
#include "amp/snapshot.h"
#include "amp/step_record.h"
#include "amp/step_witness.h"
#include "core/torch.h"

namespace mezzo::detail {

/// A gradient that was set to zeros, as long as nothing writes it: always there in a bucket, it
/// need not be read to know that no backward pass added to it.
class Cleared {
 public:
  void note(const at::Tensor& gradient);
  bool is_still(const at::Tensor& gradient) const;

 private:
  const c10::TensorImpl* gradient_ = nullptr;
  std::uint32_t version_ = 0;
};

/// A parameter of the optimizer.
struct Slot {
  at::Tensor weight;        // the network's
  at::Tensor master;        // what the optimizer steps: a float copy, or the weight itself
  at::Tensor stash;         // the weight's gradient when the scope was entered
  bool in_bucket = false;   // the gradient stayed where it was: the stash is only for undoing
  Cleared cleared;          // the weight's gradient when it went to the master
  Weight* entry = nullptr;  // of the weight table, where there is a master

  bool has_master() const { return entry != nullptr; }
};

using WeightSet = std::unordered_set<const c10::TensorImpl*>;

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
  int loss_id = 0;               // the loss to tell about
  scaling::ScaleValue scale_before;
  bool scale_known = false;
  bool several_losses = false;  // a device knows which of them overflowed
};

/// Optimizer and gradients of a session.
///
/// A scope of `scale_loss` enters, runs a backward pass that writes fresh gradients, and then
/// leaves in one of three ways: gradients settled (unscaled, checked, added up), still scaled, or
/// undone.
class OptimizerState {
 public:
  OptimizerState(Session& session, OptimizerRef ref, int index);

  Session& session() const noexcept { return session_; }
  torch::optim::Optimizer& inner() const noexcept { return *ref_.inner; }
  int index() const noexcept { return index_; }
  /// One for each parameter, however often the optimizer lists it.
  std::vector<Slot>& slots() noexcept { return slots_; }
  /// That of a place in the optimizer's groups, counted through all of them.
  const Slot& slot_at(std::size_t place) const { return slots_[places_[place]]; }
  Snapshot& snapshot() noexcept { return snapshot_; }

  /// Parameters that were added or unfrozen since get their places and masters.
  void sync();

  /// The caller's parameters are in the optimizer again, with their state.
  void restore();

  // ---- a scope's entrance and exits
  bool in_scope() const noexcept { return in_scope_; }
  void check_entry(std::string_view where);
  /// After `settle_shared`: masters miss nothing of the gradients that are there.
  void check_gradients_at_entry(std::string_view where) const;
  /// Sets gradients aside, so that the backward pass makes fresh ones. Those in a reducer's bucket
  /// stay and get the scale, since the bucket must hold all that is to be averaged; once, where
  /// several optimizers of the scope own a weight: `in_buckets` gathers those that have it.
  void enter(const scaling::LossScaler& scaler, WeightSet& in_buckets);
  /// Gradients were accumulated without being averaged: they stay scaled until they are.
  bool waits_for_reduction() const;
  void leave_scaled(const StillScaled& scaled);
  /// An earlier block left gradients scaled, which may be settled outside of a scope.
  bool may_settle() const;
  /// An earlier block than that of this scope left gradients scaled for another loss.
  bool is_scaled_by_another(int loss_id) const;
  /// Does another optimizer own one of these parameters as well?
  bool shares_weights(const OptimizerState& other) const;
  /// This backward pass's gradients, out of the way while others are settled, and back again.
  std::vector<at::Tensor> take_fresh();
  void set_aside();
  void give_fresh_back(const std::vector<at::Tensor>& fresh);
  void undo();
  /// The exit failed half-way: the scope is over, and no gradient is left of which nobody knows
  /// the scale.
  void abandon();
  /// `any` gradient was computed since the scope was entered.
  void leave_settled(bool any);

  /// The loss's verdict: its flag is not zero where the step must be skipped.
  void judge(int loss_id, const Session::Verdict& verdict, const scaling::ScaleValue& scale_before);
  /// The scale of the loss before it moved; no verdict.
  void note_scale(int loss_id, const scaling::ScaleValue& before);
  /// The loss itself, to be able to say later that it was not a number.
  void note_loss(const at::Tensor& loss) { loss_ = loss; }

  void keep_error(std::exception_ptr error) { pending_error_ = std::move(error); }
  const std::optional<StillScaled>& still_scaled() const noexcept { return now_.still_scaled; }
  const OptimizerProgress& progress() const noexcept { return now_; }
  /// With the gradients that are there.
  void set_progress(OptimizerProgress progress) {
    now_ = std::move(progress);
    now_.had_gradients = has_gradients();
  }

  // ---- steps
  std::shared_ptr<const StepRecord> step();
  std::shared_ptr<const StepRecord> step(const torch::optim::Optimizer::LossClosure& closure);
  /// A weight whose master would miss the gradient that a plain backward() left; null: none. Of
  /// what lies in buckets only that is read, waiting for a device, which was written since its
  /// master took it.
  const Slot* missed_by_master() const;
  /// Gradients that were left scaled are unscaled, checked and added up; nothing where none are.
  void settle_deferred();
  /// For callers who step the inner optimizer themselves: after an overflow gradients are dropped,
  /// so that their step moves nothing.
  void decide_without_step();
  void zero_grad(bool set_to_none);
  /// These weights' gradients were cleared. An overflow whose gradients are all gone skips nothing.
  void forget_cleared(const std::vector<at::Tensor>& weights);
  /// The gradients that overflowed are gone.
  void forget_overflow();
  /// What a scope set aside of these weights' gradients, where one is open.
  void clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none);
  /// Weights that moved away from their buckets leave the zeros there: elsewhere they would be a
  /// gradient that the master missed.
  void leave_buckets();
  void before_training_forward() { snapshot_.take(); }

  /// Exact: they wait for decisions that are still on a device.
  std::int64_t applied_steps();
  std::int64_t skipped_steps();
  /// Steps that moved weights since `initialize`, whatever was loaded since. The last one, where a
  /// device has not told of it yet, counts as taken until it tells otherwise.
  std::int64_t steps_made();
  void set_steps(std::int64_t applied, std::int64_t skipped);
  void refresh_casts();
  void invalidate_casts();

 private:
  friend class ClosureRun;

  void count_applied() noexcept {
    ++applied_;
    ++made_;
  }
  void rebuild_slots();
  bool takes_gradients_as_they_come(const Slot& slot) const;
  void find_models();
  Slot slot_of(at::Tensor& parameter);
  void check_step();
  void check_gradients();
  bool has_gradients() const;
  /// Do scopes keep casts of weights: the level's own, or those of a low type that is emulated?
  bool keeps_casts() const;
  void take_foreign_steps();
  bool must_skip() const;
  void run_inner(const torch::optim::Optimizer::LossClosure& closure = nullptr);
  bool can_step_scaled() const;
  std::shared_ptr<const StepRecord> step_scaled();
  bool device_decides() const;
  std::shared_ptr<const StepRecord> step_by_flag();
  std::shared_ptr<const StepRecord> finish_undecided();
  void hear(bool waits);
  void take(const Decision& decision);
  void leave_gradients_behind();
  void end_step();
  void publish_masters();
  void drop_gradients();
  std::vector<at::Tensor> weights() const;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> scaled_by_others() const;
  std::vector<at::Tensor> weight_gradients() const;
  std::int64_t model_calls() const;
  std::shared_ptr<const StepRecord> finish(bool applied);
  std::string overflow_reason();
  void tell_step(const StepRecord& record);
  void check_exhausted(const std::string& reason);
  void tell_silent_parameters(std::int64_t steps);

  Session& session_;
  OptimizerRef ref_;
  int index_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> places_;  // the slot of each parameter that the groups list
  std::vector<ModelState*> models_;  // whose parameters it steps
  std::int64_t calls_at_step_ = 0;   // of these models, when the last step was decided
  Snapshot snapshot_;

  std::shared_ptr<FusedStep> fused_;  // null: LibTorch's own optimizers, and wrappers around one

  StepWitness witness_;
  bool is_stepping_ = false;  // between two evaluations of a closure weights move

  bool was_synced_ = false;
  bool in_scope_ = false;
  OptimizerProgress now_;
  std::exception_ptr pending_error_;
  at::Tensor loss_;  // the last one, on hosts

  Decisions decisions_;                // of devices, that the host has not heard of yet
  WeightSet cleared_;                  // whose gradients were, one model's after the other's
  bool undecided_gradients_ = false;   // those of the last of them are still there
  std::map<int, std::int64_t> stuck_;  // each loss's overflows in a row at the floor, as heard of

  std::int64_t applied_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t made_ = 0;
};

}  // namespace mezzo::detail
