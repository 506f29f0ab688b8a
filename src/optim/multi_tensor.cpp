#include "bridge/multi_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <unordered_set>

#include "bridge/outputs.h"
#include "bridge/tensors.h"
#include "core/torch.h"
#include "mezzo/multi_tensor.h"

namespace mezzo::optim {
namespace {

void check_flag(const char* where, const at::Tensor& found_inf) {
  if (!found_inf.defined() || found_inf.numel() != 1 || found_inf.is_complex()) {
    raise<ConfigError>(where, "found_inf must be a tensor of one int or float element");
  }
}

// The p-norm for any p above 0, where two and infinity have kernels of their own.
at::Tensor norm_of(const char* where, at::TensorList grads, double p) {
  if (p == 2.0) return bridge::norm_there(where, grads, kernels::Norm::kTwo);
  if (std::isinf(p)) return bridge::norm_there(where, grads, kernels::Norm::kMax);
  const at::Device device = bridge::device_of_list(grads);
  const at::Tensor sum = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  for (const at::Tensor& grad : grads) {
    const at::Tensor norm = at::linalg_vector_norm(grad, p, {}, false, at::kDouble);
    sum.add_(norm.pow(p).to(device));
  }
  return sum.pow(1 / p);
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
  const auto name_of = [](std::size_t i) {
    return "the gradient of parameter " + std::to_string(i);
  };
  std::vector<at::Tensor> grads;
  std::vector<std::size_t> of_param;
  std::unordered_set<const c10::TensorImpl*> seen;
  bool wide = false;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!params[i].defined()) raise<ConfigError>(kWhere, "parameter ", i, " is undefined");
    const at::Tensor& grad = params[i].grad();
    if (!grad.defined() || !seen.insert(grad.unsafeGetTensorImpl()).second) continue;
    bridge::check_floating_tensor(kWhere, name_of(i), grad);
    grads.push_back(grad);
    of_param.push_back(i);
    wide = wide || grad.scalar_type() == at::kDouble;
  }
  // Also if nothing will be clipped: whether a program runs depends on no number.
  bridge::check_outputs(
      kWhere, [&](std::size_t k) { return name_of(of_param[k]); }, grads);
  const at::Tensor norm = norm_of(kWhere, grads, norm_type);
  if (error_if_nonfinite) {
    const auto number = norm.item<double>();
    if (!std::isfinite(number)) {
      raise(kWhere, "the norm of the gradients is ", number, "; gradients are as they were");
    }
  }
  bridge::scale_by(kWhere, grads, norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0));
  return norm.to(wide ? at::kDouble : at::kFloat);
}

void multi_tensor_scale(at::TensorList in, at::TensorList out, double scale,
                        at::Tensor& found_inf) {
  check_flag("multi_tensor_scale", found_inf);
  at::NoGradGuard no_grad;
  bridge::scale("multi_tensor_scale", in, out, scale, found_inf);
}

void multi_tensor_axpby(at::TensorList x, at::TensorList y, at::TensorList out, double a, double b,
                        at::Tensor& found_inf) {
  check_flag("multi_tensor_axpby", found_inf);
  at::NoGradGuard no_grad;
  bridge::axpby("multi_tensor_axpby", x, y, out, a, b, found_inf);
}

std::pair<at::Tensor, at::Tensor> multi_tensor_l2norm(at::TensorList tensors, bool per_tensor) {
  at::NoGradGuard no_grad;
  at::Tensor each;
  const at::Tensor norm = bridge::norm_there("multi_tensor_l2norm", tensors, kernels::Norm::kTwo,
                                             per_tensor ? &each : nullptr);
  return {norm.to(at::kFloat), per_tensor ? each.to(at::kFloat) : at::Tensor()};
}

}  // namespace mezzo::optim
