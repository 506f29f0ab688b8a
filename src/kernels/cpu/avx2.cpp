// AVX2 with FMA and F16C: Intel since Haswell, AMD since Zen.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::avx2 {

constexpr int kVectorBytes = 32;
#include "kernels/cpu/lanes.inl"

static inline Vec square_root(Vec x) {
  return {(RawFloats)_mm256_sqrt_ps((__m256)x.v)};
}
static inline RawFloats widen_half(RawHalves h) {
  return (RawFloats)_mm256_cvtph_ps((__m128i)h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return (RawHalves)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT);
}

#include "kernels/cpu/loops.inl"

const KernelSet& kernel_set() {
  static const KernelSet set = kernel_set_named("avx2");
  return set;
}

}  // namespace mezzo::kernels::avx2
