// How mixed precision joins a fused step: it may lend each parameter a low-precision gradient to
// read and a low-precision copy to write in the same pass.
#pragma once

#include <functional>
#include <memory>

#include "bridge/split_masters.h"
#include "core/torch.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

/// The extra operands of one parameter's update. Both may be null; the tensors are
/// defined, have the parameter's sizes and stay where they are until the step ends. A gradient of
/// another layout is copied first, a copy of another layout is an error.
struct LowCopy {
  /// Half, bfloat16 or float; read in place of `.grad()`.
  const at::Tensor* source_grad = nullptr;
  /// Half or bfloat16, or float with `rounded_to`: gets the new weight.
  const at::Tensor* copy = nullptr;
  /// kHalf or kBFloat16: `copy` is float and holds numbers rounded to that type, for processors
  /// that compute the low type in float.
  std::optional<at::ScalarType> rounded_to;
  /// A split master (bridge/split_masters.h): the parameter is float and has no memory, `copy` is
  /// its bfloat16 weight, and this stands beside it. For optimizers whose row in kinds.cpp says
  /// `steps_split_masters`, on devices that have kernels.
  const bridge::SplitRest* rest = nullptr;
};

class StepContext {
 public:
  virtual ~StepContext() = default;

  /// Asked once per parameter and step, in the order of the groups, before anything is written.
  virtual LowCopy low_copy(const at::Tensor& parameter) = 0;

  /// Called once after each step that was not an error: all weights and copies are written, and
  /// their versions bumped, if `applied`. Where the flag lives on a device nobody has read it:
  /// `applied` is then true though nothing may have moved.
  virtual void stepped(bool applied) = 0;
};

/// Lends a context to an optimizer, or takes it back (null). The optimizer shares it.
MEZZO_API void set_step_context(FusedOptimizer& optimizer, std::shared_ptr<StepContext> context);

/// Before the states of a fused optimizer move to other keys: its step counters, which a device may
/// keep, are brought up to date and count from there. Waits for the device. Others are left alone.
MEZZO_API void settle_step_counts(torch::optim::Optimizer& optimizer);

/// The step of `defer_unscale`: looks at every gradient that the step would read, sets `found_inf`
/// (one float, on the parameters' device) to 1 if one is not finite, lets `agree` join the flag
/// with others (ranks, optimizers), and then does what step_unless(found_inf, inv_scale) does.
/// Where gradients are clipped the look is the norm's own pass.
MEZZO_API void step_checked(FusedOptimizer& optimizer, at::Tensor& found_inf,
                            const at::Tensor& inv_scale,
                            const std::function<void(at::Tensor&)>& agree = {});

}  // namespace mezzo::optim
