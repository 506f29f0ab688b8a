// The one place that reaches into a FusedOptimizer.
#pragma once

#include <functional>

#include "core/torch.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

/// Who decides whether a step is taken.
struct StepDecision {
  at::Tensor found_inf = {};
  bool look_at_gradients = false;
  std::function<void(at::Tensor&)> agree = {};
};

struct StepAccess {
  static StepWork& work(FusedOptimizer&);
  static void step(FusedOptimizer&, StepDecision, const at::Tensor& inv_scale);

  /// Brings the host's step counters up to date with the device's.
  static void settle_counts(const FusedOptimizer&);
  /// A state was loaded: its counters count.
  static void forget_counts(FusedOptimizer&);

 private:
  static void step_on_device(FusedOptimizer&, const StepDecision&, const at::Tensor& inv_scale,
                             double bound);
  static void clip(FusedOptimizer&, double norm);
};

}  // namespace mezzo::optim
