#include "parallel/batch_norm_steps.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "bridge/device.h"
#include "bridge/rows.h"
#include "bridge/tensors.h"
#include "kernels/batch_norm.h"

namespace mezzo::parallel {
namespace {

using bridge::rows_of;
using bridge::rows_out_of;

bool channels_innermost(const at::Tensor& x) {
  return x.dim() == 2 ? x.is_contiguous() : x.movedim(1, -1).is_contiguous();
}

// Kernels see channels that are innermost as rows, each of its own sample.
kernels::BatchShape shape_of(const at::Tensor& x) {
  const std::int64_t channels = x.size(1);
  const std::int64_t elements = channels == 0 ? 0 : x.numel() / channels;
  if (!x.is_contiguous() || x.dim() == 2) return {elements, channels, 1};
  const std::int64_t samples = x.size(0);
  return {samples, channels, samples == 0 ? 1 : elements / samples};
}

at::Tensor per_channel(const at::Tensor& tensor) {
  return tensor.defined() ? bridge::as_stored(tensor.detach()).contiguous() : tensor;
}

// The memory of another tensor in the order of x's.
at::Tensor laid_out_as(const at::Tensor& tensor, const at::Tensor& x) {
  if (!tensor.defined()) return tensor;
  at::Tensor plain = tensor.detach();
  if (bridge::is_dense(plain) && bridge::same_layout(plain, x)) return plain;
  return bridge::empty_laid_out_as(x, plain.scalar_type()).copy_(plain);
}

kernels::BatchGradient gradient_of(const BatchStep& step, const at::Tensor& dy,
                                   const at::Tensor& y) {
  kernels::BatchGradient gradient;
  gradient.shape = shape_of(step.x);
  gradient.dy = rows_of(dy);
  gradient.x = rows_of(step.x);
  if (step.relu) gradient.relu_output = rows_of(y);
  gradient.mean = step.mean.const_data_ptr<double>();
  return gradient;
}

// Two numbers a channel, beside x.
at::Tensor two_rows(const at::Tensor& x) {
  return at::zeros({2, x.size(1)}, at::TensorOptions(x.device()).dtype(at::kDouble));
}

}  // namespace

at::Tensor laid_out(const at::Tensor& x) {
  const at::Tensor stored = bridge::as_stored(x);
  return stored.is_contiguous() || channels_innermost(stored) ? stored : stored.contiguous();
}

at::Tensor batch_moments(const at::Tensor& x) {
  if (!bridge::has_kernels(x.device(), bridge::Family::kBatchNorms))
    return by_operators::batch_moments(x);
  const kernels::BatchShape shape = shape_of(x);
  at::Tensor moments = two_rows(x);
  auto* mean = moments.mutable_data_ptr<double>();
  bridge::batch_moments(rows_of(x), shape, {mean, mean + shape.channels}, x.device());
  return moments;
}

at::Tensor batch_normalised(const BatchStep& step, const at::Tensor& z) {
  if (!bridge::has_kernels(step.x.device(), bridge::Family::kBatchNorms))
    return by_operators::batch_normalised(step, z);
  const at::Tensor residual = laid_out_as(z, step.x);
  const at::Tensor weight = per_channel(step.weight);
  const at::Tensor bias = per_channel(step.bias);
  at::Tensor y = bridge::empty_laid_out_as(step.x, step.x.scalar_type());
  kernels::BatchNormalise norm;
  norm.shape = shape_of(step.x);
  norm.x = rows_of(step.x);
  norm.residual = rows_of(residual);
  norm.y = rows_out_of(y);
  norm.mean = step.mean.const_data_ptr<double>();
  norm.rstd = step.rstd.const_data_ptr<double>();
  norm.weight = rows_of(weight);
  norm.bias = rows_of(bias);
  norm.relu = step.relu;
  bridge::batch_normalise(norm, step.x.device());
  return y;
}

at::Tensor batch_gradient_sums(const BatchStep& step, const at::Tensor& dy, const at::Tensor& y) {
  if (!bridge::has_kernels(step.x.device(), bridge::Family::kBatchNorms))
    return by_operators::batch_gradient_sums(step, dy, y);
  const at::Tensor dense_dy = laid_out_as(dy, step.x);
  const at::Tensor dense_y = laid_out_as(y, step.x);
  const kernels::BatchGradient gradient = gradient_of(step, dense_dy, dense_y);
  const std::int64_t channels = gradient.shape.channels;
  at::Tensor sums = two_rows(step.x);
  auto* sum_dy = sums.mutable_data_ptr<double>();
  bridge::batch_backward_reduce(gradient, sum_dy, sum_dy + channels, step.x.device());
  return sums;
}

std::pair<at::Tensor, at::Tensor> batch_gradients(const BatchStep& step, const at::Tensor& dy,
                                                  const at::Tensor& y, const at::Tensor& means,
                                                  bool wants_dx, bool wants_dz) {
  if (!wants_dx && !wants_dz) return {};
  if (!bridge::has_kernels(step.x.device(), bridge::Family::kBatchNorms)) {
    return by_operators::batch_gradients(step, dy, y, means, wants_dx, wants_dz);
  }
  const at::Tensor dense_dy = laid_out_as(dy, step.x);
  const at::Tensor dense_y = laid_out_as(y, step.x);
  const at::Tensor weight = per_channel(step.weight);
  std::pair<at::Tensor, at::Tensor> result;
  if (wants_dx) result.first = bridge::empty_laid_out_as(step.x, step.x.scalar_type());
  if (wants_dz) result.second = bridge::empty_laid_out_as(step.x, dy.scalar_type());
  kernels::BatchBackwardApply apply;
  apply.gradient = gradient_of(step, dense_dy, dense_y);
  apply.rstd = step.rstd.const_data_ptr<double>();
  apply.weight = rows_of(weight);
  if (means.defined()) {
    apply.mean_dy = means.const_data_ptr<double>();
    apply.mean_dy_xmu = apply.mean_dy + apply.gradient.shape.channels;
  }
  apply.dx = rows_out_of(result.first);
  apply.dresidual = rows_out_of(result.second);
  bridge::batch_backward_apply(apply, step.x.device());
  return result;
}

}  // namespace mezzo::parallel
