// How a fused optimizer reads low-precision gradients and writes low-precision weights in its own
// pass: the weights behind masters, and the copies that casts of float weights left.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "amp/weight_table.h"
#include "casting/cast_loans.h"
#include "optim/step_context.h"

namespace mezzo::amp::detail {

struct Slot;

/// Lends the weights of an optimizer to its step.
class FusedStep : public optim::StepContext {
 public:
  explicit FusedStep(optim::FusedOptimizer& optimizer) : optimizer_(optimizer) {}

  /// Null for an optimizer of another kind.
  static std::shared_ptr<FusedStep> of(torch::optim::Optimizer& optimizer);

  /// The optimizer asks us from now on, or no longer.
  static void attach(const std::shared_ptr<FusedStep>& step);
  void detach();

  /// One update by the masters' gradients, low-precision weights written in the same pass; with
  /// `casts` also the copies that casts made. The closure, if any, is called first and may change
  /// the slots.
  void step(std::vector<Slot>& slots, bool casts,
            const torch::optim::Optimizer::LossClosure& closure = nullptr);

  /// As above, unless `found_inf` is not zero: where it lives on a device, nobody waits for it.
  void step_unless(std::vector<Slot>& slots, bool casts, const at::Tensor& found_inf);

  /// As above, by gradients that are still scaled and lie with the weights: looks at them, and
  /// moves nothing where one is not finite; `found_inf` says so.
  void step_scaled(std::vector<Slot>& slots, bool casts, at::Tensor& found_inf,
                   const at::Tensor& inverse, const std::function<void(at::Tensor&)>& agree);

  /// The last step was taken: the copies that it wrote hold, and those of the other weights that it
  /// moved are cast now. Without this call they are cast at their next use.
  void keep_casts();

  optim::LowCopy low_copy(const at::Tensor& parameter) override;
  void stepped(bool applied) override;

 private:
  class Lending;
  Slot* slot_of(const at::Tensor& parameter);

  optim::FusedOptimizer& optimizer_;
  std::vector<Slot>* slots_ = nullptr;  // while a step of ours runs
  std::size_t next_ = 0;                // whose turn it is
  bool lends_gradients_ = false;
  bool lends_casts_ = false;
  casting::CastLoans loans_;
  std::vector<at::Tensor> not_lent_;  // weights that were moved without the copies of their casts
};

}  // namespace mezzo::amp::detail
