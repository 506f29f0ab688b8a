// The strongest peer of LibTorch's own: autocast, `_amp_foreach_*` and `_fused_adamw_`.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <vector>

#include "device_check/networks.h"

namespace mezzo::device_check {

/// Steps a network of floats under native autocast; float16 with a scale of loss on the device.
class NativeStep {
 public:
  NativeStep(std::shared_ptr<CheckedNetwork> net, at::Device place, at::ScalarType low);
  void operator()(const Batch& batch);
  bool weights_are_finite() const;

 private:
  at::Tensor autocast_loss(const Batch& batch);

  std::shared_ptr<CheckedNetwork> net_;
  at::Device place_;
  at::ScalarType low_;
  std::vector<at::Tensor> params_, values_, m_, v_, steps_;
  at::Tensor found_, scale_, growth_;
};

}  // namespace mezzo::device_check
