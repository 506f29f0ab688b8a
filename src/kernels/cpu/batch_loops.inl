// The loops of batch norms of one instruction set, included as loops.inl is.

// Each file uses what those before it define.
// clang-format off
#include "kernels/cpu/lanes_memory.inl"
#include "kernels/cpu/ranges.inl"
#include "kernels/cpu/batch_runs.inl"
#include "kernels/cpu/batch_moments.inl"
#include "kernels/cpu/batch_norms.inl"
// clang-format on

BatchNormKernels batch_norm_kernels();
BatchNormKernels batch_norm_kernels() {
  return {.moments = batch_moments_of,
          .normalise = batch_normalise_part,
          .backward_reduce = batch_backward_reduce_part,
          .backward_apply = batch_backward_apply_part};
}
