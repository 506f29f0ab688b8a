// Scales and flags on their way between devices.
#pragma once

#include "core/torch.h"

namespace mezzo::scaling {

/// The tensor on that device; itself where it is there. A copy to a GPU is queued, so that nothing
/// waits; one to a host has arrived, since hosts read at once.
inline at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

}  // namespace mezzo::scaling
