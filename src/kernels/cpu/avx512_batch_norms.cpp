// Batch norms of the set avx512.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::avx512 {

#include "kernels/cpu/avx512.inl"
#include "kernels/cpu/batch_loops.inl"

}  // namespace mezzo::kernels::avx512
