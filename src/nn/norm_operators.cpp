// Norms made of LibTorch's operators: for other devices, and for graphs of backwards.
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include "nn/norm_call.h"

namespace mezzo::nn {
namespace {

at::Tensor as_rows(const NormCall& call, const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type).reshape({call.rows, call.columns});
}

at::Tensor as_row(const NormCall& call, const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type).reshape({1, call.columns});
}

struct Normalised {
  at::Tensor hat, rstd;  // [rows, columns], [rows, 1]
};

Normalised normalise(const NormCall& call, const at::Tensor& rows) {
  const at::Tensor centred = call.rms ? rows : rows - rows.mean({1}, true);
  const at::Tensor rstd = (centred.pow(2).mean({1}, true) + call.eps).rsqrt();
  return {centred * rstd, rstd};
}

// The normalised rows again, from the result and the weight and bias that made it.
Normalised from_result(const NormCall& call, const NormSaved& saved, at::ScalarType type) {
  at::Tensor hat = as_rows(call, saved.x, type);
  if (saved.bias.defined()) hat = hat - as_row(call, saved.bias, type);
  if (saved.weight.defined()) {
    const at::Tensor weight = as_row(call, saved.weight, type);
    const double least = smallest_weight(call);
    const at::Tensor nearest = at::where(weight.signbit(), -least, least).to(type);
    hat = hat / at::where(weight.abs() < least, nearest, weight);
  }
  return {hat, saved.rstd.reshape({call.rows, 1})};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> norm_of_operators(const NormCall& call, const at::Tensor& x,
                                                    const at::Tensor& residual,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias) {
  const at::ScalarType type = statistics_type(x, residual, weight, bias);
  const at::Tensor sum = residual.defined() ? x + residual : at::Tensor();
  at::Tensor y = normalise(call, as_rows(call, sum.defined() ? sum : x, type)).hat;
  if (weight.defined()) y = y * as_row(call, weight, type);
  if (bias.defined()) y = y + as_row(call, bias, type);
  return {y.reshape(x.sizes()).to(x.scalar_type()), sum};
}

NormGradients norm_backward_of_operators(const NormCall& call, const NormSaved& saved,
                                         const at::Tensor& dy, const at::Tensor& dsum,
                                         const at::Tensor& drstd) {
  const at::ScalarType type = saved.rstd.scalar_type();
  const Normalised n = call.memory_efficient ? from_result(call, saved, type)
                                             : normalise(call, as_rows(call, saved.x, type));
  NormGradients result;
  at::Tensor dx;
  if (dy.defined()) {
    const at::Tensor g = as_rows(call, dy, type);
    const at::Tensor weighted = saved.weight.defined() ? g * as_row(call, saved.weight, type) : g;
    dx = weighted - n.hat * (weighted * n.hat).mean({1}, true);
    if (!call.rms) dx = dx - weighted.mean({1}, true);
    dx = dx * n.rstd;
    result.dweight = (g * n.hat).sum(0);
    result.dbias = g.sum(0);
  }
  if (drstd.defined()) {
    const at::Tensor through =
        drstd.reshape({call.rows, 1}) * n.rstd * n.rstd * n.hat / static_cast<double>(call.columns);
    dx = dx.defined() ? dx - through : -through;
  }
  if (dsum.defined()) {
    const at::Tensor direct = as_rows(call, dsum, type);
    dx = dx.defined() ? dx + direct : direct;
  }
  result.dx = dx.reshape(saved.x.sizes());
  return result;
}

}  // namespace mezzo::nn
