// LibTorch's own autocast on CPUs, the peer of several suites.
#pragma once

#include <ATen/autocast_mode.h>

namespace mezzo::bench {

/// A scope of it, as a program would switch it on.
class NativeAutocast {
 public:
  explicit NativeAutocast(at::ScalarType low) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, low);
    at::autocast::increment_nesting();
  }
  ~NativeAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  NativeAutocast(const NativeAutocast&) = delete;
  NativeAutocast& operator=(const NativeAutocast&) = delete;
};

}  // namespace mezzo::bench
