// Parameter groups keep the options that they were given.
#pragma once

#include <torch/optim/optimizer.h>

namespace mezzo::optim {

/// Called after LibTorch took over `given` as `group`. LibTorch 2.15 merges a group's options with
/// the optimizer's defaults, and of kinds that are not its own it keeps the defaults alone.
inline void keep_options(torch::optim::OptimizerParamGroup& group,
                         const torch::optim::OptimizerParamGroup& given) {
  if (given.has_options()) group.set_options(given.options().clone());
}

}  // namespace mezzo::optim
