// Memory of lists by LibTorch's allocators.
#pragma once

#include "core/torch.h"
#include "kernels/cuda/interface.h"

namespace mezzo::bridge {

/// LibTorch's allocator for the devices of a type: what fills a card with its cache gives us of it,
/// and what we have shows in its statistics. Null for CPUs, where device memory is a matter of
/// whoever stands in for a device.
const kernels::cuda::Memory* memory_of(c10::DeviceType);

}  // namespace mezzo::bridge
