// The set that every processor of this architecture runs: 16-byte vectors (SSE2, NEON), float16 by
// integer arithmetic.
#include <math.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::baseline {

constexpr int kVectorBytes = 16;
#include "kernels/cpu/lanes.inl"

static inline Vec square_root(Vec x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = sqrtf(x.v[i]);
  return x;
}
static inline RawFloats widen_half(RawHalves h) {
  return widen_half_anywhere(h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return narrow_half_anywhere(f);
}

#include "kernels/cpu/loops.inl"

const KernelSet& kernel_set() {
  static const KernelSet set = kernel_set_named("baseline");
  return set;
}

}  // namespace mezzo::kernels::baseline
