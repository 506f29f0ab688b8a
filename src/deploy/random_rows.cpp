// Random numbers: drawn anew in every run of the model, by its engine.
#include <ATen/ops/zeros.h>

#include <cmath>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

at::ScalarType float_type(C c) {
  return at::isFloatingType(c.out_type()) ? c.out_type() : at::kFloat;
}

/// Random numbers of the sizes of the result: those of an operand, or those that are given.
std::string drawn(C c, std::string_view op, at::ScalarType type,
                  const OnnxAttributes& attributes = {}) {
  OnnxAttributes all = attributes;
  all["dtype"] = onnx_type(type);
  bool is_fixed = true;
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < c.out_rank(); ++d) {
    sizes.push_back(c.fixed_out(d));
    is_fixed = is_fixed && sizes.back() >= 0;
  }
  if (is_fixed) {
    all["shape"] = sizes;
    return c.one(op, {}, all);
  }
  const bool has_mean = c.takes("mean") && example_of(c.arg("mean"), 0).isTensor();
  const std::string_view like = c.takes("self") ? "self" : has_mean ? "mean" : "std";
  const std::string shaped = c.takes("size")
                                 ? c.one("ConstantOfShape", {c.list("size")},
                                         {{"value", at::zeros({1}, at::TensorOptions(type))}})
                                 : c.x(like);
  return c.one(std::string(op) + "Like", {shaped}, all);
}

std::string uniform(C c, double low = 0, double high = 1) {
  return drawn(c, "RandomUniform", float_type(c), {{"low", low}, {"high", high}});
}

std::string standard_normal(C c) {
  return drawn(c, "RandomNormal", float_type(c));
}

Names whole_numbers(C c) {
  const double low = c.has("low") ? c.d("low") : 0;
  const std::string numbers = c.one("Floor", {uniform(c, low, c.d("high"))});
  // A float may be rounded up to the end, which is none of the numbers.
  const std::string inside = c.one("Min", {numbers, c.g.number(c.d("high") - 1, float_type(c))});
  return {c.g.cast(inside, float_type(c), c.out_type())};
}

/// Each slope is drawn in training, and is the middle else.
Names rrelu(C c) {
  if (!c.b("training"))
    return {c.unary("LeakyRelu", {{"alpha", (c.d("lower") + c.d("upper")) / 2}})};
  const std::string x = c.x(), below = c.one("Less", {x, c.constant(0)});
  return {c.one("Where", {below, c.one("Mul", {x, uniform(c, c.d("lower"), c.d("upper"))}), x})};
}

Names coins(C c) {
  const at::ScalarType type = float_type(c);
  const std::string chance = c.has("p") ? c.x("p", type) : c.x("self", type);
  return {c.g.cast(c.one("Less", {uniform(c), chance}), at::kBool, c.out_type())};
}

Names normal(C c) {
  const at::ScalarType type = c.out_type();
  return {c.one("Add", {c.one("Mul", {standard_normal(c), c.x("std", type)}), c.x("mean", type)})};
}

/// Minus the logarithm of a uniform number above zero.
std::string exponential(C c, const std::string& numbers, at::ScalarType type) {
  const double least = type == at::kHalf ? 0x1p-14 : 0x1p-126;
  return c.one("Neg", {c.one("Log", {c.one("Max", {numbers, c.g.number(least, type)})})});
}

Names exponential_numbers(C c) {
  const at::ScalarType type = c.out_type();
  return {c.one("Div", {exponential(c, uniform(c), type), c.x("lambd", type)})};
}

/// The places of the largest logarithms of chances with Gumbel's noise; with replacement, in
/// draws of their own.
Names choices(C c) {
  const std::int64_t count = c.i("num_samples");
  const bool again = c.b("replacement") && count > 1;
  const at::ScalarType type = c.type();
  std::string x = c.one("Log", {c.x()});
  if (again) x = c.one("Expand", {c.unsqueezed(x, {c.rank() - 1}), c.g.ints({count, 1})});
  const std::string numbers = c.one("RandomUniformLike", {x}, {{"dtype", onnx_type(type)}});
  const std::string noise = c.one("Log", {exponential(c, numbers, type)});
  const std::string noisy = c.one("Sub", {x, noise});
  if (again)
    return {c.one("ArgMax", {noisy}, {{"axis", std::int64_t{-1}}, {"keepdims", std::int64_t{0}}})};
  return {c.g.ops("TopK", {noisy, c.g.ints({count})}, {{"axis", c.rank() - 1}}, 2)[1]};
}

constexpr Row kRandom[] = {
    {"rrelu", 13, rrelu},
    {"rand rand_like", 13, [](C c) { return Names{uniform(c)}; }},
    {"randn randn_like", 13, [](C c) { return Names{standard_normal(c)}; }},
    {"randint randint_like", 13, whole_numbers},
    {"uniform", 13, [](C c) { return Names{uniform(c, c.d("from"), c.d("to"))}; }},
    {"normal", 13, normal},
    {"bernoulli", 13, coins},
    {"exponential", 13, exponential_numbers},
    {"multinomial", 13, choices},
};

}  // namespace

std::span<const Row> random_rows() {
  return kRandom;
}

}  // namespace mezzo::deploy::detail
