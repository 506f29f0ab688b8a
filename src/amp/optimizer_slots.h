// The parameters that an optimizer steps: weights of networks, and the masters behind low ones.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "amp/session.h"
#include "amp/snapshot.h"
#include "amp/step_witness.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// A gradient that was set to zeros, as long as nothing writes it: it need not be read to know that
/// no backward pass added to it. Keeps no memory alive.
class Cleared {
 public:
  void note(const at::Tensor& gradient);
  bool is_still(const at::Tensor& gradient) const;

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<Weak> gradient_;  // while it is held, no other tensor has this address
  std::uint32_t version_ = 0;
};

/// A gradient as a scope left it scaled. LibTorch's clip_grad_norm_ writes through data(), which
/// moves no version: on hosts single values show it.
class LeftScaled {
 public:
  void note(const at::Tensor& gradient);
  bool is_still(const at::Tensor& gradient) const;

 private:
  Cleared same_;
  Samples samples_{};
};

/// A parameter of the optimizer.
struct Slot {
  at::Tensor weight;        // the network's
  at::Tensor master;        // what the optimizer steps: a float copy, or the weight itself
  at::Tensor stash;         // the weight's gradient when the scope was entered
  bool in_bucket = false;   // the gradient stayed where it was: the stash is only for undoing
  Cleared cleared;          // the weight's gradient when it went to the master
  Cleared zeros;            // the master's gradient, cleared by zero_grad(false)
  LeftScaled left_scaled;   // the weight's gradient
  bool dropped = false;     // it had a gradient, which a step took, or which overflowed
  Weight* entry = nullptr;  // of the weight table, where there is a master

  bool has_master() const { return entry != nullptr; }
};

using WeightSet = std::unordered_set<const c10::TensorImpl*>;

/// The slots of one optimizer, one for each parameter however often the optimizer lists it, and
/// the networks that the parameters belong to.
class OptimizerSlots {
 public:
  /// `takes_low_gradients`: a step of this optimizer reads gradients in the type that a cast's
  /// backward left. `snapshot` is taken before training forwards of the networks.
  OptimizerSlots(Session& session, torch::optim::Optimizer& inner, Snapshot& snapshot,
                 bool takes_low_gradients);

  std::vector<Slot>& all() noexcept { return slots_; }
  const std::vector<Slot>& all() const noexcept { return slots_; }
  /// The slot of a place in the optimizer's groups, counted through all of them.
  const Slot& at(std::size_t place) const { return slots_[places_[place]]; }

  /// Parameters that were added or unfrozen since get their places and masters.
  void sync();

  /// The caller's parameters are in the optimizer again, with their state.
  void restore();

  /// The capture of a graph that is under way where the weights are; 0: none.
  std::uint64_t capture() const;

  std::vector<at::Tensor> weights() const;
  bool shares_weights(const OptimizerSlots& other) const;

  /// Masters let go of their memory (Options::split_masters), or have some again.
  void split_masters();
  void give_masters_memory();

  /// The masters' values go to their weights.
  void publish_masters();

  /// Do scopes keep casts of weights: the level's own, or those of a low type that is emulated?
  bool keeps_casts() const;
  void refresh_casts();
  void invalidate_casts();
  /// Casts are those of the weights as they are now.
  void note_cast_values();
  /// The casts of weights that were written through data() since are made anew at their next use;
  /// seen as the weight table sees it, by single values on hosts. Before a call.
  void doubt_written_casts();
  /// Whatever was written and not announced is taken in: masters' values into weights, weights'
  /// into masters, and casts are made anew.
  void take_all_writes();

  /// Steps of the bare optimizer, and writes that look like steps, reach weights and casts; said
  /// once. Before a step.
  void take_foreign_steps();
  /// As above, before a call, as far as masters were written.
  void publish_foreign_steps();
  /// As above, between forward and backward, where weights must stay as they are: casts alone are
  /// dropped, and masters that were written wait for the next call or step.
  void note_foreign_steps();
  /// Weights are as they should be; the calls of the networks are counted from here.
  void note_step();
  /// Are some of the network's parameters among the slots?
  bool steps(const ModelState& model) const;
  /// Was no network of these weights called since the last step?
  bool calls_are_missing() const;

  /// While it lives, an optimizer moves weights between evaluations of a closure, and nobody takes
  /// that for a foreign step.
  class Stepping {
   public:
    explicit Stepping(OptimizerSlots& slots) : slots_(slots) { slots_.is_stepping_ = true; }
    ~Stepping() { slots_.is_stepping_ = false; }
    Stepping(const Stepping&) = delete;
    Stepping& operator=(const Stepping&) = delete;

   private:
    OptimizerSlots& slots_;
  };

 private:
  void rebuild();
  bool masters_were_written() const;
  void publish_written();
  void note_foreign_step();
  Slot slot_of(at::Tensor& parameter);
  bool takes_gradients_as_they_come(const Slot& slot) const;
  void find_models();
  std::int64_t model_calls() const;

  Session& session_;
  torch::optim::Optimizer& inner_;
  Snapshot& snapshot_;
  bool takes_low_gradients_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> places_;  // the slot of each parameter that the groups list
  std::vector<ModelState*> models_;  // whose parameters it steps
  std::int64_t calls_at_step_ = 0;   // of these models, when the last step was decided
  StepWitness witness_;
  std::vector<Samples> cast_values_;  // of the weights, in the order of the slots
  bool is_stepping_ = false;
  bool was_synced_ = false;
};

}  // namespace mezzo::amp::detail
