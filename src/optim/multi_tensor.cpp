#include "bridge/multi_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>

#include "core/torch.h"
#include "mezzo/optim.h"

namespace mezzo::optim {
namespace {

void check_flag(const char* where, const at::Tensor& found_inf) {
  if (!found_inf.defined() || found_inf.numel() != 1 || found_inf.is_complex()) {
    raise<ConfigError>(where, "found_inf must be a tensor of one int or float element");
  }
}

// The p-norm for any p above 0, where two and infinity have kernels of their own.
double norm_of(at::TensorList grads, double p) {
  if (p == 2.0) return bridge::norm("clip_grad_norm_", grads, kernels::Norm::kTwo);
  if (std::isinf(p)) return bridge::norm("clip_grad_norm_", grads, kernels::Norm::kMax);
  double sum = 0;
  for (const at::Tensor& grad : grads) {
    const at::Tensor norm = at::linalg_vector_norm(grad, p, {}, false, at::kDouble);
    sum += std::pow(norm.item<double>(), p);
  }
  return std::pow(sum, 1 / p);
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm, double norm_type,
                           bool error_if_nonfinite) {
  constexpr const char* kWhere = "clip_grad_norm_";
  if (!(max_norm >= 0)) {
    raise<ConfigError>(kWhere, "max_norm is ", max_norm, "; expected at least 0");
  }
  if (!(norm_type > 0)) {
    raise<ConfigError>(kWhere, "norm_type is ", norm_type, "; expected above 0, or infinity");
  }
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  bool wide = false;
  for (const at::Tensor& param : params) {
    if (!param.grad().defined()) continue;
    grads.push_back(param.grad());
    wide = wide || grads.back().scalar_type() == at::kDouble;
  }
  const double norm = norm_of(grads, norm_type);
  if (error_if_nonfinite && !std::isfinite(norm)) {
    raise(kWhere, "the norm of the gradients is ", norm, "; gradients are as they were");
  }
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) bridge::scale(kWhere, grads, grads, factor);
  const at::Device device = grads.empty() ? at::Device(at::kCPU) : grads[0].device();
  const at::ScalarType type = wide ? at::kDouble : at::kFloat;
  return at::scalar_tensor(norm, at::TensorOptions(device).dtype(type));
}

void multi_tensor_scale(at::TensorList in, at::TensorList out, double scale,
                        at::Tensor& found_inf) {
  check_flag("multi_tensor_scale", found_inf);
  at::NoGradGuard no_grad;
  if (!bridge::scale("multi_tensor_scale", in, out, scale)) found_inf.fill_(1);
}

void multi_tensor_axpby(at::TensorList x, at::TensorList y, at::TensorList out, double a, double b,
                        at::Tensor& found_inf) {
  check_flag("multi_tensor_axpby", found_inf);
  at::NoGradGuard no_grad;
  if (!bridge::axpby("multi_tensor_axpby", x, y, out, a, b)) found_inf.fill_(1);
}

std::pair<at::Tensor, at::Tensor> multi_tensor_l2norm(at::TensorList tensors, bool per_tensor) {
  at::NoGradGuard no_grad;
  std::vector<double> each;
  const double norm = bridge::norm("multi_tensor_l2norm", tensors, kernels::Norm::kTwo,
                                   per_tensor ? &each : nullptr);
  at::Tensor norms;
  if (per_tensor) {
    norms = at::empty({static_cast<std::int64_t>(each.size())}, at::kFloat);
    std::transform(each.begin(), each.end(), norms.mutable_data_ptr<float>(),
                   [](double value) { return static_cast<float>(value); });
  }
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors[0].device();
  if (norms.defined()) norms = norms.to(device);
  return {at::scalar_tensor(norm, at::TensorOptions(device).dtype(at::kFloat)), norms};
}

}  // namespace mezzo::optim
