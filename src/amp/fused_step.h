// How a fused optimizer reads low-precision gradients and writes low-precision weights in its own
// pass.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "amp/weight_table.h"
#include "optim/step_context.h"

namespace mezzo::detail {

struct Slot;
class OptimizerState;

/// Lends the weights behind an optimizer's masters to its step.
class FusedStep : public optim::StepContext {
 public:
  explicit FusedStep(optim::FusedOptimizer& optimizer) : optimizer_(optimizer) {}

  /// Null for an optimizer of another kind.
  static std::shared_ptr<FusedStep> of(torch::optim::Optimizer& optimizer);

  /// The optimizer asks us from now on, or no longer.
  static void attach(const std::shared_ptr<FusedStep>& step);
  void detach();

  /// One update by the masters' gradients, low-precision weights written in the same pass.
  void step(std::vector<Slot>& slots);

  /// The same by gradients that are still scaled and lie with the weights: looks at them, and moves
  /// nothing where one is not finite; `found_inf` tells.
  void step_scaled(std::vector<Slot>& slots, at::Tensor& found_inf, const at::Tensor& inverse,
                   const std::function<void(at::Tensor&)>& agree);

  optim::LowCopy low_copy(const at::Tensor& parameter) override;
  void stepped(bool applied) override;

 private:
  void lend(std::vector<Slot>& slots, bool gradients);

  optim::FusedOptimizer& optimizer_;
  bool lends_gradients_ = false;
  std::unordered_map<const c10::TensorImpl*, Slot*> slots_;
};

}  // namespace mezzo::detail
