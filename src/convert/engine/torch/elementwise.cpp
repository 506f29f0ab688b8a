// Operators that treat every element by itself, with ONNX's broadcasting.
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/add.h>
#include <ATen/ops/any.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/special_erfc.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

template <Tensor (*Function)(const Tensor&)>
Tensors unary(const Call& c) {
  return {Function(c.in(0))};
}

// Until opset 6 broadcasting was asked for, and the second input's first axis could be named.
Tensor second(const Call& c) {
  Tensor b = c.in(1);
  if (c.opset() >= 7 || c.integer("broadcast", 0) == 0 || !c.is_given("axis")) return b;
  const std::int64_t rank = c.in(0).dim();
  const std::int64_t axis = wrapped(c.integer("axis", 0), rank);
  for (std::int64_t i = axis + b.dim(); i < rank; ++i) b = b.unsqueeze(-1);
  return b;
}

template <Tensor (*Function)(const Tensor&, const Tensor&)>
Tensors binary(const Call& c) {
  return {Function(c.in(0), second(c))};
}

// LibTorch has hardly any arithmetic in wide unsigned types: it is done in int64.
bool is_wide_unsigned(const Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return type == at::kUInt16 || type == at::kUInt32 || type == at::kUInt64;
}

Tensor in_int64(const Tensor& x) {
  Tensor wide = x.to(at::kLong);
  if (x.scalar_type() == at::kUInt64 && at::lt(wide, 0).any().item<bool>())
    refuse("values of 2^63 and above");
  return wide;
}

template <Tensor (*Function)(const Tensor&, const Tensor&)>
Tensor any_type(const Tensor& a, const Tensor& b) {
  if (!is_wide_unsigned(a)) return Function(a, b);
  return Function(in_int64(a), in_int64(b)).to(a.scalar_type());
}

template <Tensor (*Function)(const Tensor&, const Tensor&)>
Tensors variadic(const Call& c) {
  Tensor all = c.in(0);
  for (std::size_t i = 1; i < c.inputs(); ++i) all = Function(all, c.in(i));
  return {all};
}

Tensor add(const Tensor& a, const Tensor& b) {
  return at::add(a, b);
}
Tensor subtract(const Tensor& a, const Tensor& b) {
  return at::sub(a, b);
}

Tensors mean(const Call& c) {
  return {at::div(variadic<add>(c)[0], static_cast<double>(c.inputs()))};
}

Tensor divide(const Tensor& a, const Tensor& b) {
  if (at::isIntegralType(a.scalar_type(), false)) return at::div(a, b, "trunc");
  return at::div(a, b);
}

Tensors power(const Call& c) {
  const Tensor& base = c.in(0);
  const Tensor exponent = second(c);
  if (at::isFloatingType(base.scalar_type())) {
    return {at::pow(base, exponent.to(base.scalar_type()))};
  }
  return {at::pow(base.to(at::kDouble), exponent.to(at::kDouble)).to(base.scalar_type())};
}

Tensors modulo(const Call& c) {
  if (c.integer("fmod", 0) != 0) return {any_type<at::fmod>(c.in(0), c.in(1))};
  return {any_type<at::remainder>(c.in(0), c.in(1))};
}

Tensors shift(const Call& c) {
  const at::ScalarType type = c.in(0).scalar_type();
  const Tensor a = c.in(0).to(at::kLong);
  const Tensor b = c.in(1).to(at::kLong);
  const bool left = c.text("direction", "") == "LEFT";
  return {(left ? at::bitwise_left_shift(a, b) : at::bitwise_right_shift(a, b)).to(type)};
}

Tensors prelu(const Call& c) {
  const Tensor& x = c.in(0);
  Tensor slope = c.in(1);
  if (c.opset() < 7 && slope.numel() > 1 && slope.dim() == 1 && x.dim() > 1) {
    for (std::int64_t i = 2; i < x.dim(); ++i) slope = slope.unsqueeze(-1);
  }
  return {at::where(at::ge(x, 0), x, at::mul(x, slope))};
}

Tensors clip(const Call& c) {
  Tensor x = c.in(0);
  const bool has_low = c.is_given("min") || c.has(1);
  const bool has_high = c.is_given("max") || c.has(2);
  if (has_low) x = c.is_given("min") ? at::clamp(x, c.number("min", 0)) : at::maximum(x, c.in(1));
  if (has_high) {
    x = c.is_given("max") ? at::clamp(x, std::nullopt, c.number("max", 0))
                          : at::minimum(x, c.in(2));
  }
  return {x};
}

Tensor exponential(const Tensor& x, double alpha, double scale) {
  const Tensor negative = at::mul(at::expm1(at::clamp(x, std::nullopt, 0)), alpha);
  return at::mul(at::where(at::gt(x, 0), x, negative), scale);
}

Tensors elu(const Call& c) {
  return {exponential(c.in(0), c.number("alpha", 1.0), 1.0)};
}

Tensors selu(const Call& c) {
  return {exponential(c.in(0), c.number("alpha", 1.67326319217681884765625),
                      c.number("gamma", 1.05070102214813232421875))};
}

Tensors celu(const Call& c) {
  const double alpha = c.number("alpha", 1.0);
  const Tensor& x = c.in(0);
  const Tensor negative = at::mul(at::expm1(at::div(at::clamp(x, std::nullopt, 0), alpha)), alpha);
  return {at::add(at::clamp(x, 0), negative)};
}

Tensors leaky_relu(const Call& c) {
  return {at::leaky_relu(c.in(0), c.number("alpha", 0.01))};
}

Tensors thresholded_relu(const Call& c) {
  const Tensor& x = c.in(0);
  return {at::where(at::gt(x, c.number("alpha", 1.0)), x, at::zeros_like(x))};
}

Tensors hard_sigmoid(const Call& c) {
  return {
      at::clamp(at::add(at::mul(c.in(0), c.number("alpha", 0.2)), c.number("beta", 0.5)), 0, 1)};
}

Tensors hard_swish(const Call& c) {
  const Tensor gate = at::clamp(at::add(at::div(c.in(0), 6.0), 0.5), 0, 1);
  return {at::mul(c.in(0), gate)};
}

Tensors swish(const Call& c) {
  return {at::mul(c.in(0), at::sigmoid(at::mul(c.in(0), c.number("alpha", 1.0))))};
}

// LibTorch's own adds 1 to an erf or a tanh near -1, which leaves nothing of the tail.
Tensors gelu(const Call& c) {
  const Tensor x = c.in(0).to(at::kDouble);
  Tensor share;
  if (c.text("approximate", "none") == "tanh") {
    const Tensor cubed = at::mul(at::mul(x, x), x);
    share = at::sigmoid(at::mul(at::add(x, cubed, 0.044715), 2 * std::sqrt(2 / M_PI)));
  } else {
    share = at::mul(at::special_erfc(at::mul(x, -M_SQRT1_2)), 0.5);
  }
  // Where the share is zero, so is the result: infinity times zero is none.
  const Tensor result = at::where(at::eq(share, 0), at::zeros_like(x), at::mul(x, share));
  return {result.to(c.in(0).scalar_type())};
}

Tensors softsign(const Call& c) {
  return {at::div(c.in(0), at::add(at::abs(c.in(0)), 1))};
}

Tensors softplus(const Call& c) {
  const Tensor& x = c.in(0);
  return {at::add(at::clamp(x, 0), at::log1p(at::exp(at::neg(at::abs(x)))))};
}

Tensors shrink(const Call& c) {
  const Tensor& x = c.in(0);
  const double bias = c.number("bias", 0.0);
  const double lambda = c.number("lambd", 0.5);
  const Tensor zero = at::zeros_like(x);
  const Tensor above = at::where(at::gt(x, lambda), at::sub(x, bias), zero);
  return {at::where(at::lt(x, -lambda), at::add(x, bias), above)};
}

Tensors is_infinite(const Call& c) {
  const Tensor& x = c.in(0);
  Tensor any = at::isinf(x);
  if (c.integer("detect_negative", 1) == 0) any = at::logical_and(any, at::gt(x, 0));
  if (c.integer("detect_positive", 1) == 0) any = at::logical_and(any, at::lt(x, 0));
  return {any};
}

Tensors identity(const Call& c) {
  return {c.in(0)};
}

Tensors dropout(const Call& c) {
  if (c.has(2) && c.list(2).at(0) != 0) {
    const bool keeps_all = c.has(1) && c.in(1).item<double>() == 0;
    if (!keeps_all) refuse("dropout in training is random");
  }
  return {c.in(0), at::ones_like(c.in(0), at::kBool)};
}

Tensors where(const Call& c) {
  return {at::where(c.in(0), c.in(1), c.in(2))};
}

template <Tensor (*Function)(const Tensor&, const Tensor&)>
Tensors comparison(const Call& c) {
  const Tensor b = second(c);
  return {Function(c.in(0), b)};
}

// Sorted by name.
constexpr TorchOperator kElementwiseOperators[] = {
    {"Abs", unary<at::abs>},
    {"Acos", unary<at::acos>},
    {"Acosh", unary<at::acosh>},
    {"Add", binary<add>},
    {"And", binary<at::logical_and>},
    {"Asin", unary<at::asin>},
    {"Asinh", unary<at::asinh>},
    {"Atan", unary<at::atan>},
    {"Atanh", unary<at::atanh>},
    {"BitShift", shift},
    {"BitwiseAnd", binary<at::bitwise_and>},
    {"BitwiseNot", unary<at::bitwise_not>},
    {"BitwiseOr", binary<at::bitwise_or>},
    {"BitwiseXor", binary<at::bitwise_xor>},
    {"Cast", identity},
    {"CastLike", identity},
    {"Ceil", unary<at::ceil>},
    {"Celu", celu},
    {"Clip", clip},
    {"Cos", unary<at::cos>},
    {"Cosh", unary<at::cosh>},
    {"Div", binary<divide>},
    {"Dropout", dropout},
    {"Elu", elu},
    {"Equal", comparison<at::eq>},
    {"Erf", unary<at::erf>},
    {"Exp", unary<at::exp>},
    {"Floor", unary<at::floor>},
    {"Gelu", gelu},
    {"Greater", comparison<at::gt>},
    {"GreaterOrEqual", comparison<at::ge>},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", hard_swish},
    {"Identity", identity},
    {"IsInf", is_infinite},
    {"IsNaN", unary<at::isnan>},
    {"LeakyRelu", leaky_relu},
    {"Less", comparison<at::lt>},
    {"LessOrEqual", comparison<at::le>},
    {"Log", unary<at::log>},
    {"Max", variadic<any_type<at::maximum>>},
    {"Mean", mean},
    {"Min", variadic<any_type<at::minimum>>},
    {"Mish", unary<at::mish>},
    {"Mod", modulo},
    {"Mul", binary<at::mul>},
    {"Neg", unary<at::neg>},
    {"Not", unary<at::logical_not>},
    {"Or", binary<at::logical_or>},
    {"PRelu", prelu},
    {"Pow", power},
    {"Reciprocal", unary<at::reciprocal>},
    {"Relu", unary<at::relu>},
    {"Round", unary<at::round>},
    {"Selu", selu},
    {"Shrink", shrink},
    {"Sigmoid", unary<at::sigmoid>},
    {"Sign", unary<at::sign>},
    {"Sin", unary<at::sin>},
    {"Sinh", unary<at::sinh>},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"Sqrt", unary<at::sqrt>},
    {"Sub", binary<subtract>},
    {"Sum", variadic<add>},
    {"Swish", swish},
    {"Tan", unary<at::tan>},
    {"Tanh", unary<at::tanh>},
    {"ThresholdedRelu", thresholded_relu},
    {"Where", where},
    {"Xor", binary<at::logical_xor>},
};

}  // namespace

std::span<const TorchOperator> elementwise_operators() {
  return kElementwiseOperators;
}

}  // namespace mezzo::convert
