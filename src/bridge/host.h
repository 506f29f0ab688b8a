// Which devices a host reads without waiting.
#pragma once

#include "core/torch.h"

namespace mezzo::bridge {

/// Is what this device holds at hand without waiting? So it is on CPUs, unless kernels that are
/// asked for results as a device is were chosen for them (choose_kernels of device.h).
bool is_host(const at::Device&);

}  // namespace mezzo::bridge
