// The caller's optimizer under an optimization level: it steps masters, and skips itself after an
// overflow.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/options.h"
#include "mezzo/step_result.h"

namespace mezzo {
namespace amp::detail {
class OptimizerState;
}

namespace amp {

/// The optimizer that `initialize` was given. It wraps the caller's object, which must outlive it
/// and stays usable for schedulers and hyper-parameters. Copies share. A default-constructed handle
/// is empty, for members that are assigned later: every member but `operator bool` throws
/// ConfigError then.
///
/// Threads: belongs to one training loop.
class MEZZO_API Optimizer {
 public:
  Optimizer() = default;
  explicit Optimizer(std::shared_ptr<detail::OptimizerState> state);

  /// Moves the weights by the gradients that `scale_loss` left, unless one of them was not finite:
  /// then nothing changes, and the gradients are dropped. Without any gradient there is nothing to
  /// do, and the result is `empty`. Throws Error if gradients are still scaled, were changed while
  /// they were (Options::defer_unscale), or were made outside of `scale_loss` though the level
  /// needs it, what went wrong when a scope was left, and when the scale is stuck at its floor.
  StepResult step();

  /// As above, for optimizers that evaluate the loss themselves. The closure clears gradients, runs
  /// forward and `scale_loss(...).backward()` and returns the unscaled loss. An evaluation that
  /// overflows is repeated at the lower scale, at most 20 times, and not where no scale can fall;
  /// then weights and optimizer are as before and the step is skipped. If the first evaluation
  /// leaves no gradient, the result is `empty`.
  StepResult step(const torch::optim::Optimizer::LossClosure& closure);

  /// Clears the gradients of weights and masters.
  void zero_grad(bool set_to_none = true);

  /// Adds a group; low-precision parameters in it get masters.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// The caller's optimizer. Its groups hold the masters if there are any. Its `step` cannot
  /// skip or copy.
  torch::optim::Optimizer& inner();
  const torch::optim::Optimizer& inner() const;

  /// The groups of the caller's optimizer; at levels with masters they hold the masters. Gradients
  /// that wait for `step` to be unscaled (Options::defer_unscale) are unscaled now.
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();

  /// The state that the caller's optimizer keeps of each parameter, as torch::optim::Optimizer
  /// gives it: by the tensors that `param_groups` hold.
  using States = std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;
  States& state();
  const States& state() const;

  /// The properties in force: the level's row with the caller's changes.
  const Properties& properties() const;

  /// The scale of a loss now, 1 if disabled. Reads it where it lives on a device.
  double loss_scale(int loss_id = 0) const;

  /// Sets it, for static scales as well; the counter of clean passes starts again.
  void set_loss_scale(double scale, int loss_id = 0);

  /// Steps that moved weights, and steps that were skipped, since `initialize` or the loaded
  /// checkpoint.
  std::int64_t applied_steps() const;
  std::int64_t skipped_steps() const;

  /// Steps without any gradient since `initialize`: neither applied nor skipped.
  std::int64_t empty_steps() const;

  /// After raw writes to weights, which LibTorch cannot see (`data().clamp_()`): low-precision
  /// copies are made anew, and masters take all values that were changed.
  void invalidate_casts();

  /// Compares weights, masters and loss scales of all that `initialize` was given between the ranks
  /// of `Options::overflow_group`, which all call this: Error on all of them where they differ,
  /// with the ranks and the first parameter; nothing in a program of one process. One small
  /// collective where they are equal. `Options::expect_equal_every` does it every so many steps.
  void expect_equal_ranks() const;

  /// tensor * scale, in float at least and seen by autograd; for gradient penalties and
  /// autograd::grad.
  at::Tensor scale(const at::Tensor& tensor, int loss_id = 0) const;

  /// Divides these tensors by the scale in place, seen by autograd where they carry a graph.
  void unscale(at::TensorList tensors, int loss_id = 0) const;

  /// Tensors that are given back when a step is skipped, with the values they had at the first
  /// training forward since the last step: moving averages and the like. Tensors updated after
  /// `step()` are not given back: look at its result first.
  void protect(const std::vector<at::Tensor>& tensors);

  /// False for a handle that `initialize` has not given yet.
  explicit operator bool() const noexcept { return state_ != nullptr; }

  /// For the library itself.
  const std::shared_ptr<detail::OptimizerState>& shared() const;

 private:
  std::shared_ptr<detail::OptimizerState> state_;
};

/// The tensors that the optimizer steps, group by group: masters if there are any. Clip these:
/// gradients that wait for `step` to be unscaled (Options::defer_unscale) are unscaled now.
MEZZO_API std::vector<at::Tensor> master_params(const Optimizer& optimizer);

}  // namespace amp
}  // namespace mezzo
