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

 private:
  static void clip(FusedOptimizer&, double norm);
};

}  // namespace mezzo::optim
