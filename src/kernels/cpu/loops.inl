// All loops of one instruction set but those of batch norms. Its file includes this in its own
// namespace, after the float16 conversions and square_root(Vec), so that every function below
// exists once per set.

// Each file uses what those before it define.
// clang-format off
#include "kernels/cpu/lanes_memory.inl"
#include "kernels/cpu/ranges.inl"
#include "kernels/cpu/reductions.inl"
#include "kernels/cpu/elementwise.inl"
#include "kernels/cpu/steps.inl"
#include "kernels/cpu/norms.inl"
#include "kernels/cpu/norm_rows.inl"
// clang-format on

/// Batch norms have a file of their own: the compiler inlines less in large ones.
void set_batch_norms(KernelSet& set);

static KernelSet kernel_set_named(const char* name) {
  KernelSet set;
  set.name = name;
  set.all_finite = all_finite;
  set.max_magnitude = max_magnitude;
  set.square_sum = square_sum;
  set.scale = scale;
  set.axpby = axpby;
  set.copy = copy;
  set.copy_as = copy_as;
  set.adam = adam;
  set.sgd = sgd;
  set.adagrad = adagrad;
  set.lamb_moments = lamb_moments_of;
  set.lamb_apply = lamb_apply;
  set.novograd = novograd;
  set.norm_forward = norm_forward_rows;
  set.norm_backward = norm_backward_rows;
  set_batch_norms(set);
  return set;
}
