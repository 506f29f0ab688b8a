#include "nn/norm_call.h"

#include "bridge/tensors.h"

namespace mezzo::nn {
namespace {

void check_type(const char* where, const char* what, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !bridge::kernel_dtype(tensor.scalar_type())) {
    raise<ConfigError>(where, what, " is ", bridge::describe(tensor),
                       "; expected a dense tensor of Float, Half, BFloat16 or Double");
  }
}

void check_affine(const char* where, const char* what, const at::Tensor& tensor,
                  at::IntArrayRef normalized_shape, const at::Tensor& x) {
  if (!tensor.defined()) return;
  check_type(where, what, tensor);
  if (tensor.sizes() != normalized_shape || tensor.device() != x.device()) {
    raise<ConfigError>(where, what, " is ", bridge::describe(tensor), "; expected sizes ",
                       normalized_shape, " on ", x.device());
  }
}

}  // namespace

void check_norm(NormCall& call, const at::Tensor& x, const at::Tensor& residual,
                at::IntArrayRef normalized_shape, const at::Tensor& weight,
                const at::Tensor& bias) {
  const char* where = call.where;
  if (!x.defined()) raise<ConfigError>(where, "the input is undefined");
  check_type(where, "the input", x);
  const auto dims = static_cast<std::int64_t>(normalized_shape.size());
  if (dims == 0) raise<ConfigError>(where, "normalized_shape is empty; expected one size or more");
  if (x.dim() < dims ||
      x.sizes().slice(static_cast<std::size_t>(x.dim() - dims)) != normalized_shape) {
    raise<ConfigError>(where, "the input is ", bridge::describe(x),
                       "; expected its last sizes to be ", normalized_shape);
  }
  if (!(call.eps >= 0)) raise<ConfigError>(where, "eps is ", call.eps, "; expected at least 0");
  if (residual.defined()) {
    check_type(where, "the residual", residual);
    if (residual.sizes() != x.sizes() || residual.device() != x.device()) {
      raise<ConfigError>(where, "the residual is ", bridge::describe(residual), ", the input ",
                         bridge::describe(x), "; expected the same sizes and device");
    }
  }
  check_affine(where, "weight", weight, normalized_shape, x);
  check_affine(where, "bias", bias, normalized_shape, x);
  call.columns = 1;
  for (const std::int64_t size : normalized_shape) call.columns *= size;
  call.rows = 1;
  for (const std::int64_t size : x.sizes().slice(0, static_cast<std::size_t>(x.dim() - dims))) {
    call.rows *= size;
  }
}

at::ScalarType statistics_type(const at::Tensor& x, const at::Tensor& residual,
                               const at::Tensor& weight, const at::Tensor& bias) {
  for (const at::Tensor& tensor : {x, residual, weight, bias}) {
    if (tensor.defined() && tensor.scalar_type() == at::kDouble) return at::kDouble;
  }
  return at::kFloat;
}

}  // namespace mezzo::nn
