// The loops of batch norms of one instruction set, included as loops.inl is.

// Each file uses what those before it define.
// clang-format off
#include "kernels/cpu/lanes_memory.inl"
#include "kernels/cpu/ranges.inl"
#include "kernels/cpu/batch_runs.inl"
#include "kernels/cpu/batch_moments.inl"
#include "kernels/cpu/batch_norms.inl"
// clang-format on

void set_batch_norms(KernelSet& set);
void set_batch_norms(KernelSet& set) {
  set.batch_moments = batch_moments_of;
  set.batch_normalise = batch_normalise_part;
  set.batch_backward_reduce = batch_backward_reduce_part;
  set.batch_backward_apply = batch_backward_apply_part;
}
