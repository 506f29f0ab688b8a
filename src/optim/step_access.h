// The one place that reaches into a FusedOptimizer.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/torch.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

/// The judge of whether a step is taken.
struct StepDecision {
  at::Tensor found_inf = {};
  bool look_at_gradients = false;
  std::function<void(at::Tensor&)> agree = {};
};

struct StepAccess {
  /// Then it has no work, nor parameters, and is left alone.
  static bool is_moved_from(const FusedOptimizer&);
  static StepWork& work(FusedOptimizer&);
  static void step(FusedOptimizer&, StepDecision, const at::Tensor& inv_scale);

  /// Throws ConfigError if the optimizer would not step with these options.
  static void check_options(const FusedOptimizer&, const Options&);

  /// Brings the host's step counters up to date with the device's. Returns the keys of states that
  /// count nothing themselves and were made for a first step that the device skipped.
  static std::vector<void*> settle_counts(const FusedOptimizer&);
  /// As above, and the host's counters count: parameters go elsewhere.
  static void take_counts_back(FusedOptimizer&);
  /// A state was loaded: its counters count.
  static void forget_counts(FusedOptimizer&);

 private:
  static void step_on_device(FusedOptimizer&, const StepDecision&, const at::Tensor& inv_scale,
                             double bound);
  static void clip(FusedOptimizer&, double norm);
};

/// While it lives, the states of an optimizer are what a file should hold: counters are up to date,
/// and a first step that a device skipped has left none. The memory of those stays, since a
/// captured graph may use it.
class SettledStates {
 public:
  explicit SettledStates(const FusedOptimizer&);
  ~SettledStates();
  SettledStates(const SettledStates&) = delete;
  SettledStates& operator=(const SettledStates&) = delete;

 private:
  FusedOptimizer& optimizer_;
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> aside_;
};

}  // namespace mezzo::optim
