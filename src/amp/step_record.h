// The record behind a StepResult, as far as it is known; the rest waits on the device.
#pragma once

#include <string>

#include "amp/overflow_ranks.h"
#include "core/torch.h"
#include "scaling/loss_scaler.h"

namespace mezzo::amp::detail {

struct StepRecord {
  bool applied = true;
  bool empty = false;  // no parameter had a gradient: then `applied` is false
  scaling::ScaleValue scale_before;
  scaling::ScaleValue scale_after;
  std::string reason;

  // Where the device decided: read when asked for.
  at::Tensor found_inf;  // defined: `applied` and `reason` follow from it
  OverflowRanks ranks;   // to follow `reason`

  /// Reads the flag where the device decided.
  bool is_applied() const { return found_inf.defined() ? found_inf.item<float>() == 0 : applied; }
  bool is_skipped() const { return !is_applied() && !empty; }
};

}  // namespace mezzo::amp::detail
