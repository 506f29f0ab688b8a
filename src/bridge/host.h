// Which devices a host reads without waiting.
#pragma once

#include "core/torch.h"

namespace mezzo::bridge {

/// Is what this device holds at hand without waiting? Not where tests treat CPUs as devices
/// (treat_cpus_as_cuda of device.h).
bool is_host(const at::Device&);

}  // namespace mezzo::bridge
