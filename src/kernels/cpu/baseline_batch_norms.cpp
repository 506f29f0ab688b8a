// Batch norms of the set baseline.
#include <math.h>  // NOLINT(modernize-deprecated-headers): C functions, nothing inline

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::baseline {

#include "kernels/cpu/baseline.inl"
#include "kernels/cpu/batch_loops.inl"

}  // namespace mezzo::kernels::baseline
