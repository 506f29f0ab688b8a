// All loops of one instruction set but those of batch norms. Its file includes this in its own
// namespace, after the float16 conversions and square_root(Vec), so that every function below
// exists once per set.

// Each file uses what those before it define.
// clang-format off
#include "kernels/cpu/lanes_memory.inl"
#include "kernels/cpu/ranges.inl"
#include "kernels/cpu/reductions.inl"
#include "kernels/cpu/elementwise.inl"
#include "kernels/cpu/split.inl"
#include "kernels/cpu/steps.inl"
#include "kernels/cpu/norms.inl"
#include "kernels/cpu/norm_rows.inl"
// clang-format on

/// Batch norms have a file of their own: the compiler inlines less in large ones.
BatchNormKernels batch_norm_kernels();

static KernelSet kernel_set_named(const char* name) {
  const BatchNormKernels batch = batch_norm_kernels();
  return {.name = name,
          .all_finite = all_finite,
          .max_magnitude = max_magnitude,
          .square_sum = square_sum,
          .scale = scale,
          .axpby = axpby,
          .copy = copy,
          .copy_as = copy_as,
          .join_masters = join_masters,
          .split_masters = split_masters,
          .adam = adam,
          .sgd = sgd,
          .adagrad = adagrad,
          .lamb_moments = lamb_moments_of,
          .lamb_apply = lamb_apply,
          .novograd = novograd,
          .norm_forward = norm_forward_rows,
          .norm_backward = norm_backward_rows,
          .batch_moments = batch.moments,
          .batch_normalise = batch.normalise,
          .batch_backward_reduce = batch.backward_reduce,
          .batch_backward_apply = batch.backward_apply};
}
