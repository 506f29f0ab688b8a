// Numbers of devices, as CUDA and tables count them.
#pragma once

#include <c10/core/Device.h>

namespace mezzo::bridge {

/// A device's number among those of its type; a device that was named by its type alone is the
/// first.
inline int index_of(const c10::Device& device) {
  return device.has_index() ? device.index() : 0;
}

}  // namespace mezzo::bridge
