// The norms as functions that autograd knows.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "bridge/device.h"
#include "bridge/rows.h"
#include "bridge/tensors.h"
#include "mezzo/nn.h"
#include "nn/norm_call.h"

namespace mezzo::nn {
namespace {

using bridge::rows_of;
using bridge::rows_out_of;

kernels::NormShape shape_of(const NormCall& call, at::ScalarType statistics) {
  return {call.rows, call.columns, call.eps, call.rms, statistics == at::kDouble};
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? bridge::as_stored(tensor.detach()).contiguous() : tensor;
}

struct NormResult {
  at::Tensor y, sum, mean, rstd;
};

NormResult forward_by_kernels(const NormCall& call, const at::Tensor& x, const at::Tensor& residual,
                              const at::Tensor& weight, const at::Tensor& bias, bool keep) {
  const at::ScalarType statistics = statistics_type(x, residual, weight, bias);
  const at::Tensor x_rows = contiguous(x);
  const at::Tensor residual_rows = contiguous(residual);
  const at::Tensor weight_row = contiguous(weight);
  const at::Tensor bias_row = contiguous(bias);
  NormResult result;
  result.y = at::empty_like(x_rows, at::MemoryFormat::Contiguous);
  if (residual.defined()) {
    const auto wider = c10::promoteTypes(x.scalar_type(), residual.scalar_type());
    result.sum = at::empty(x.sizes(), x_rows.options().dtype(wider));
  }
  if (keep) {
    const auto options = x_rows.options().dtype(statistics);
    if (!call.rms) result.mean = at::empty({call.rows}, options);
    result.rstd = at::empty({call.rows}, options);
  }
  kernels::NormForward norm;
  norm.shape = shape_of(call, statistics);
  norm.x = rows_of(x_rows);
  norm.residual = rows_of(residual_rows);
  norm.sum = rows_out_of(result.sum);
  norm.weight = rows_of(weight_row);
  norm.bias = rows_of(bias_row);
  norm.y = rows_out_of(result.y);
  norm.mean = rows_out_of(result.mean).data;
  norm.rstd = rows_out_of(result.rstd).data;
  bridge::norm_forward(norm, x.device());
  return result;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Inputs x, residual, weight, bias; outputs the norm, then the sum if there is a residual, then
// rstd if memory_efficient: the graph of the backward needs it as a function of x.
class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  // Autograd wants missing tensors as nothing, not as undefined ones.
  using MaybeTensor = std::optional<at::Tensor>;

  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const MaybeTensor& maybe_residual, const MaybeTensor& maybe_weight,
                               const MaybeTensor& maybe_bias, const NormCall& call) {
    const at::Tensor residual = maybe_residual.value_or(at::Tensor());
    const at::Tensor weight = maybe_weight.value_or(at::Tensor());
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    const NormResult result = forward_by_kernels(call, x, residual, weight, bias, true);
    variable_list outputs{result.y};
    if (residual.defined()) outputs.push_back(result.sum);
    if (call.memory_efficient) outputs.push_back(result.rstd);
    const at::Tensor& kept = call.memory_efficient ? result.y : residual.defined() ? result.sum : x;
    context->save_for_backward({kept, weight, call.memory_efficient ? bias : at::Tensor(),
                                call.memory_efficient ? at::Tensor() : result.mean, result.rstd});
    context->set_materialize_grads(false);
    auto& data = context->saved_data;
    data["where"] = std::string(call.where);
    data["rms"] = call.rms;
    data["eps"] = call.eps;
    data["memory_efficient"] = call.memory_efficient;
    data["rows"] = call.rows;
    data["columns"] = call.columns;
    data["has_residual"] = residual.defined();
    data["x_type"] = static_cast<std::int64_t>(x.scalar_type());
    data["residual_type"] =
        static_cast<std::int64_t>(residual.defined() ? residual.scalar_type() : x.scalar_type());
    data["bias_type"] = static_cast<std::int64_t>(bias.defined() ? bias.scalar_type() : at::kFloat);
    data["has_bias"] = bias.defined();
    data["affine_sizes"] = weight.defined() ? weight.sizes().vec()
                           : bias.defined() ? bias.sizes().vec()
                                            : std::vector<std::int64_t>{};
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto& data = context->saved_data;
    const NormCall call{"norm",
                        data["rms"].toBool(),
                        data["eps"].toDouble(),
                        data["memory_efficient"].toBool(),
                        data["rows"].toInt(),
                        data["columns"].toInt()};
    const bool has_residual = data["has_residual"].toBool();
    const variable_list variables = context->get_saved_variables();
    const NormSaved saved{variables[0], variables[1], variables[2], variables[3], variables[4]};
    const at::Tensor dsum = has_residual ? grads[1] : at::Tensor();
    const at::Tensor drstd = call.memory_efficient ? grads.back() : at::Tensor();
    const bool of_operators = at::GradMode::is_enabled() || !grads[0].defined() || drstd.defined();
    NormGradients got;
    if (grads[0].defined() || dsum.defined() || drstd.defined()) {
      got = of_operators ? norm_backward_of_operators(call, saved, grads[0], dsum, drstd)
                         : norm_backward_by_kernels(call, saved, grads[0], dsum);
    }
    const auto type_of = [&](const char* key) {
      return static_cast<at::ScalarType>(data[key].toInt());
    };
    const auto as_affine = [&](const at::Tensor& grad, at::ScalarType type) {
      return grad.defined() ? grad.reshape(data["affine_sizes"].toIntVector()).to(type) : grad;
    };
    variable_list result(5);
    if (got.dx.defined()) {
      result[0] = got.dx.to(type_of("x_type"));
      if (has_residual) result[1] = got.dx.to(type_of("residual_type"));
    }
    if (saved.weight.defined()) result[2] = as_affine(got.dweight, saved.weight.scalar_type());
    if (data["has_bias"].toBool()) result[3] = as_affine(got.dbias, type_of("bias_type"));
    return result;
  }
};

// The norm and the sum.
std::pair<at::Tensor, at::Tensor> norm(NormCall call, const at::Tensor& x,
                                       const at::Tensor& residual, at::IntArrayRef normalized_shape,
                                       const at::Tensor& weight, const at::Tensor& bias) {
  check_norm(call, x, residual, normalized_shape, weight, bias);
  const auto has_tangent = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
  };
  if (!bridge::has_kernels(x.device(), bridge::Family::kNorms) || has_tangent(x) ||
      has_tangent(residual) || has_tangent(weight) || has_tangent(bias)) {
    return norm_of_operators(call, x, residual, weight, bias);
  }
  const auto wants_gradient = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  };
  if (!at::GradMode::is_enabled() || !(wants_gradient(x) || wants_gradient(residual) ||
                                       wants_gradient(weight) || wants_gradient(bias))) {
    const NormResult result = forward_by_kernels(call, x, residual, weight, bias, false);
    return {result.y, result.sum};
  }
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const variable_list outputs =
      NormFunction::apply(x, if_defined(residual), if_defined(weight), if_defined(bias), call);
  return {outputs[0], residual.defined() ? outputs[1] : at::Tensor()};
}

}  // namespace

NormGradients norm_backward_by_kernels(const NormCall& call, const NormSaved& saved,
                                       const at::Tensor& dy, const at::Tensor& dsum) {
  const at::ScalarType statistics = saved.rstd.scalar_type();
  const at::Tensor x_rows = contiguous(saved.x);
  const at::Tensor dy_rows = contiguous(dy);
  const at::Tensor dsum_rows = contiguous(dsum);
  const at::Tensor weight_row = contiguous(saved.weight);
  const at::Tensor bias_row = contiguous(saved.bias);
  const auto options = x_rows.options().dtype(statistics);
  NormGradients result{at::empty_like(x_rows), at::empty({call.columns}, options),
                       at::empty({call.columns}, options)};
  kernels::NormBackward norm;
  norm.shape = shape_of(call, statistics);
  norm.dy = rows_of(dy_rows);
  norm.x = rows_of(x_rows);
  norm.from_output = call.memory_efficient;
  norm.smallest_weight = smallest_weight(call);
  norm.weight = rows_of(weight_row);
  norm.bias = rows_of(bias_row);
  norm.mean = rows_of(saved.mean).data;
  norm.rstd = saved.rstd.const_data_ptr();
  norm.dsum = rows_of(dsum_rows);
  norm.dx = rows_out_of(result.dx);
  norm.dweight = result.dweight.mutable_data_ptr();
  norm.dbias = result.dbias.mutable_data_ptr();
  bridge::norm_backward(norm, saved.x.device());
  return result;
}

at::Tensor fused_layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                            const at::Tensor& weight, const at::Tensor& bias, double eps,
                            bool memory_efficient) {
  const NormCall call{"fused_layer_norm", false, eps, memory_efficient};
  return norm(call, x, {}, normalized_shape, weight, bias).first;
}

at::Tensor fused_rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                          const at::Tensor& weight, double eps, bool memory_efficient) {
  const NormCall call{"fused_rms_norm", true, eps, memory_efficient};
  return norm(call, x, {}, normalized_shape, weight, {}).first;
}

std::pair<at::Tensor, at::Tensor> fused_add_layer_norm(const at::Tensor& x,
                                                       const at::Tensor& residual,
                                                       at::IntArrayRef normalized_shape,
                                                       const at::Tensor& weight,
                                                       const at::Tensor& bias, double eps) {
  if (!residual.defined()) raise<ConfigError>("fused_add_layer_norm", "the residual is undefined");
  const NormCall call{"fused_add_layer_norm", false, eps, false};
  auto [y, sum] = norm(call, x, residual, normalized_shape, weight, bias);
  return {sum, y};
}

std::pair<at::Tensor, at::Tensor> fused_add_rms_norm(const at::Tensor& x,
                                                     const at::Tensor& residual,
                                                     at::IntArrayRef normalized_shape,
                                                     const at::Tensor& weight, double eps) {
  if (!residual.defined()) raise<ConfigError>("fused_add_rms_norm", "the residual is undefined");
  const NormCall call{"fused_add_rms_norm", true, eps, false};
  auto [y, sum] = norm(call, x, residual, normalized_shape, weight, {});
  return {sum, y};
}

}  // namespace mezzo::nn
