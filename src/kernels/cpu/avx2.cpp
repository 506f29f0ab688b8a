// AVX2 with FMA and F16C: Intel since Haswell, AMD since Zen.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"
#include "kernels/split_master.h"

namespace mezzo::kernels::avx2 {

#include "kernels/cpu/avx2.inl"
#include "kernels/cpu/loops.inl"

const KernelSet& kernel_set() {
  static const KernelSet set = kernel_set_named("avx2");
  return set;
}

}  // namespace mezzo::kernels::avx2
