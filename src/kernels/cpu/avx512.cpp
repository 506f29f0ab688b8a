// AVX-512 F, BW, DQ and VL. The BF16 extension is left alone: these loops wait for memory, and its
// conversion flushes small numbers to zero, so that a copy would depend on the processor.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"
#include "kernels/split_master.h"

namespace mezzo::kernels::avx512 {

#include "kernels/cpu/avx512.inl"
#include "kernels/cpu/loops.inl"

const KernelSet& kernel_set() {
  static const KernelSet set = kernel_set_named("avx512");
  return set;
}

}  // namespace mezzo::kernels::avx512
