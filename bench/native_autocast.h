// LibTorch's own autocast, the peer of several suites; C++ has no guard for it.
#pragma once

#include <ATen/autocast_mode.h>

namespace mezzo::bench {

/// A scope of it, as a program would switch it on.
class NativeAutocast {
 public:
  explicit NativeAutocast(at::ScalarType low, at::DeviceType device = at::kCPU) : device_(device) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, low);
    at::autocast::increment_nesting();
  }
  ~NativeAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  NativeAutocast(const NativeAutocast&) = delete;
  NativeAutocast& operator=(const NativeAutocast&) = delete;

 private:
  at::DeviceType device_;
};

}  // namespace mezzo::bench
