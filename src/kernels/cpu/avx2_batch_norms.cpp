// Batch norms of the set avx2.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::avx2 {

#include "kernels/cpu/avx2.inl"
#include "kernels/cpu/batch_loops.inl"

}  // namespace mezzo::kernels::avx2
