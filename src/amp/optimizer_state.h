// The state behind an Optimizer handle: its parameters, their gradients, the scopes of its
// losses, and its steps.
#pragma once

#include <memory>
#include <vector>

#include "amp/first_magnitudes.h"
#include "amp/optimizer_gradients.h"
#include "amp/optimizer_scope.h"
#include "amp/optimizer_slots.h"
#include "amp/optimizer_step.h"
#include "amp/plain_training.h"
#include "amp/rank_check.h"
#include "amp/session.h"
#include "amp/snapshot.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// An optimizer of a session: its parts, and what takes several of them.
class OptimizerState {
 public:
  OptimizerState(Session& session, OptimizerRef ref, int index);

  Session& session() const noexcept { return session_; }
  torch::optim::Optimizer& inner() const noexcept { return inner_; }
  int index() const noexcept { return index_; }

  OptimizerSlots& slots() noexcept { return slots_; }
  OptimizerGradients& gradients() noexcept { return gradients_; }
  OptimizerScope& scope() noexcept { return scope_; }
  const OptimizerScope& scope() const noexcept { return scope_; }
  OptimizerStep& steps() noexcept { return steps_; }
  Snapshot& snapshot() noexcept { return snapshot_; }
  FirstMagnitudes& first_magnitudes() noexcept { return first_magnitudes_; }
  PlainTraining& plain_training() noexcept { return plain_training_; }
  RankCheck& rank_check() noexcept { return rank_check_; }

  /// Before a scope: parameters and masters as they are now, steps of others taken in.
  void check_entry(std::string_view where);
  void enter_scope(const scaling::LossScaler& scaler, WeightSet& in_buckets);

  /// Clears the gradients of weights and masters, and what an overflow left with them.
  void zero_grad(bool set_to_none);
  /// All gradients were cleared, by whomever.
  void note_cleared();
  /// Clears gradients of these weights that a scope set aside, if one is open.
  void clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none);
  void leave_buckets();

  /// The caller's parameters are in the optimizer again, with their state.
  void restore();

 private:
  Session& session_;
  torch::optim::Optimizer& inner_;
  int index_;
  Snapshot snapshot_;
  std::shared_ptr<FusedStep> fused_;
  OptimizerSlots slots_;
  OptimizerGradients gradients_;
  OptimizerScope scope_;
  OptimizerStep steps_;
  FirstMagnitudes first_magnitudes_;
  PlainTraining plain_training_;
  RankCheck rank_check_;
};

}  // namespace mezzo::amp::detail
