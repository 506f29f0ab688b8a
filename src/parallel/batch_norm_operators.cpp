// The steps of batch norm by LibTorch's operators: for devices that our kernels do not run on.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "parallel/batch_norm_steps.h"

namespace mezzo::parallel::by_operators {
namespace {

at::ScalarType arithmetic_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// One number a channel, so that it meets x's dimension 1.
at::Tensor along_channels(const at::Tensor& numbers, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  return numbers.to(arithmetic_of(x)).reshape(shape);
}

at::Tensor centred(const at::Tensor& x, const at::Tensor& mean) {
  const at::ScalarType type = arithmetic_of(x);
  // The rounding error of the mean is subtracted as well.
  const at::Tensor near = mean.to(type);
  return x.to(type) - along_channels(near, x) - along_channels(mean - near.to(at::kDouble), x);
}

at::Tensor let_through(const BatchStep& step, const at::Tensor& dy, const at::Tensor& y) {
  const at::Tensor g = dy.to(arithmetic_of(step.x));
  return step.relu ? at::where(y <= 0, 0, g) : g;
}

}  // namespace

at::Tensor batch_moments(const at::Tensor& x) {
  if (x.numel() == 0) return at::zeros({2, x.size(1)}, x.options().dtype(at::kDouble));
  const std::vector<std::int64_t> dims = all_but_channels(x);
  const at::Tensor mean = x.to(arithmetic_of(x)).mean(dims).to(at::kDouble);
  const at::Tensor deviations = centred(x, mean);
  const at::Tensor off = deviations.mean(dims).to(at::kDouble);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  const at::Tensor m2 = deviations.square().sum(dims).to(at::kDouble) - off * off * count;
  return at::stack({mean + off, m2});
}

at::Tensor batch_normalised(const BatchStep& step, const at::Tensor& z) {
  const at::Tensor& x = step.x;
  at::Tensor scale = step.rstd;
  if (step.weight.defined()) scale = scale * step.weight.detach().to(at::kDouble);
  at::Tensor y = centred(x, step.mean) * along_channels(scale, x);
  if (step.bias.defined()) y = y + along_channels(step.bias.detach(), x);
  if (z.defined()) y = y + z.detach().to(y.scalar_type());
  if (step.relu) y = y.relu();
  return y.to(x.scalar_type());
}

at::Tensor batch_gradient_sums(const BatchStep& step, const at::Tensor& dy, const at::Tensor& y) {
  const std::vector<std::int64_t> dims = all_but_channels(step.x);
  const at::Tensor g = let_through(step, dy, y);
  return at::stack({g.sum(dims), (g * centred(step.x, step.mean)).sum(dims)}).to(at::kDouble);
}

std::pair<at::Tensor, at::Tensor> batch_gradients(const BatchStep& step, const at::Tensor& dy,
                                                  const at::Tensor& y, const at::Tensor& means,
                                                  bool wants_dx, bool wants_dz) {
  const at::Tensor g = let_through(step, dy, y);
  std::pair<at::Tensor, at::Tensor> result;
  if (wants_dz) result.second = g.to(dy.scalar_type());
  if (!wants_dx) return result;
  const at::Tensor& x = step.x;
  at::Tensor scale = step.rstd;
  if (step.weight.defined()) scale = scale * step.weight.detach().to(at::kDouble);
  at::Tensor dx = g;
  if (means.defined()) {
    const at::Tensor of_x = means[1] * step.rstd * step.rstd;
    dx = dx - along_channels(means[0], x) - centred(x, step.mean) * along_channels(of_x, x);
  }
  result.first = (dx * along_channels(scale, x)).to(x.scalar_type());
  return result;
}

}  // namespace mezzo::parallel::by_operators
