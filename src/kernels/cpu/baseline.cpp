// The set that every processor of this architecture runs: 16-byte vectors (SSE2, NEON), float16 by
// integer arithmetic.
#include <math.h>  // NOLINT(modernize-deprecated-headers): C functions, nothing inline

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/kernel_set.h"
#include "kernels/split_master.h"

namespace mezzo::kernels::baseline {

#include "kernels/cpu/baseline.inl"
#include "kernels/cpu/loops.inl"

const KernelSet& kernel_set() {
  static const KernelSet set = kernel_set_named("baseline");
  return set;
}

}  // namespace mezzo::kernels::baseline
