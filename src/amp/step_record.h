// What a StepResult tells, as far as it is known; the rest waits on the device.
#pragma once

#include <string>

#include "core/torch.h"

namespace mezzo::detail {

struct StepRecord {
  bool applied = true;
  double scale_before = 1;
  double scale_after = 1;
  std::string reason;

  // Where the device decided: read when asked for.
  at::Tensor found_inf;  // defined: `applied` and `reason` follow from it
  at::Tensor scale_before_tensor;
  at::Tensor scale_after_tensor;
};

}  // namespace mezzo::detail
