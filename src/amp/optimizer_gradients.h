// The gradients of an optimizer's parameters: taken, given back, looked at and cleared.
#pragma once

#include <vector>

#include "amp/optimizer_slots.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// The gradients of an optimizer's slots.
class OptimizerGradients {
 public:
  explicit OptimizerGradients(OptimizerSlots& slots) : slots_(slots.all()) {}

  /// Has a weight or master one, or does a scope hold one?
  bool any() const;
  /// As above, without what a scope holds.
  bool any_outside_scopes() const;
  /// As above, leaving out these weights.
  bool any_beside(const WeightSet& weights) const;
  /// The gradients of weights, in the order of the slots; undefined if there is none.
  std::vector<at::Tensor> of_weights() const;
  /// The gradients that a step would move by: the master's, or the weight's if the master has none.
  std::vector<at::Tensor> to_step_by() const;
  /// Gradients were accumulated without being averaged: they stay scaled until they are.
  bool wait_for_reduction() const;
  bool in_buckets() const;
  /// A weight whose master would miss the gradient that a plain backward() left; null: none.
  /// Gradients in buckets are read, waiting for a device, only if they were written since their
  /// master took them.
  const Slot* missed_by_master() const;

  /// A weight whose gradient is another one, or has other values, than when a scope left it scaled;
  /// null: none, or it was cleared.
  const Slot* written_while_scaled() const;

  /// This backward pass's gradients, out of the way while others are settled, and back again.
  std::vector<at::Tensor> take_fresh();
  void give_fresh_back(const std::vector<at::Tensor>& fresh);
  /// The gradients that are there are as if a scope had set them aside.
  void set_aside();

  /// Clears weights, masters and what a scope set aside. Without `set_to_none` zeros are left
  /// where a gradient was, a dropped one included, as in float.
  void clear(bool set_to_none);
  /// As above, for gradients of these weights that were dropped already.
  void clear_dropped(const std::vector<at::Tensor>& weights, bool set_to_none);
  /// Low weights have zeros as well, where their masters do.
  void leave_zeros_with_weights();
  /// Clears gradients of these weights that a scope set aside.
  void clear_stashes(const std::vector<at::Tensor>& weights, bool set_to_none);
  /// Weights and masters have none any more.
  void drop();
  /// Weights that moved away from their buckets leave the zeros there: elsewhere they would be a
  /// gradient that the master missed.
  void leave_buckets();

 private:
  std::vector<Slot>& slots_;
};

}  // namespace mezzo::amp::detail
