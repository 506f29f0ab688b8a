// Arithmetic, and functions of single elements.
#include <cmath>
#include <limits>
#include <numbers>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

Names binary(C c, std::string_view op) {
  return {c.one(op, {c.x("self", c.out_type()), c.x("other", c.out_type())})};
}

/// The largest or smallest of two numbers, or of a list of them.
Names extreme_number(C c, std::string_view op) {
  if (c.takes("a")) return binary(c, op);
  const std::vector<OnnxValue> given = c.arg(c.schema().arguments()[0].name()).elements();
  Names numbers;
  numbers.reserve(given.size());
  for (const OnnxValue& one : given) numbers.push_back(c.as(one, c.out_type()));
  return {c.one(op, numbers)};
}

/// range(lo, hi, step): how many numbers it has.
Names range_length(C c) {
  const std::string all = c.one("Sub", {c.x("hi"), c.x("lo")}), step = c.x("step");
  const std::string sign = c.one("Sign", {step});
  const std::string count = c.one("Div", {c.one("Add", {all, c.one("Sub", {step, sign})}), step});
  return {c.one("Max", {count, c.constant(0)})};
}

/// The larger or smaller of two, where neither is NaN; else the one that is a number.
Names number_among(C c, std::string_view op) {
  const std::string a = c.x("self", c.out_type()), b = c.x("other", c.out_type());
  const std::string both = c.one(op, {a, b});
  if (!at::isFloatingType(c.out_type())) return {both};
  const std::string first = c.one("Where", {c.one("IsNaN", {b}), a, both});
  return {c.one("Where", {c.one("IsNaN", {a}), b, first})};
}

Names arithmetic(C c, std::string_view op) {
  const at::ScalarType type = c.out_type();
  if (type == at::kBool) return binary(c, op == "Add" ? "Or" : "And");
  std::string other = c.x("other", type);
  if (c.has("alpha") && (!c.is_fixed("alpha") || c.d("alpha") != 1))
    other = c.one("Mul", {other, c.x("alpha", type)});
  return {c.one(op, {c.x("self", type), other})};
}

std::string floor_divided(C c, const std::string& a, const std::string& b) {
  if (at::isFloatingType(c.out_type())) return c.one("Floor", {c.one("Div", {a, b})});
  // ONNX divides integers towards zero: one less where signs differ and something is left.
  const std::string quotient = c.one("Div", {a, b});
  const std::string rest = c.one("Sub", {a, c.one("Mul", {quotient, b})});
  const std::string zero = c.constant(0);
  const std::string left = c.one("Not", {c.one("Equal", {rest, zero})});
  const std::string signs = c.one("Xor", {c.one("Less", {rest, zero}), c.one("Less", {b, zero})});
  const std::string less = c.g.cast(c.one("And", {left, signs}), at::kBool, c.out_type());
  return c.one("Sub", {quotient, less});
}

Names divide(C c) {
  const at::ScalarType type = c.out_type();
  const std::string x = c.x("self", type), y = c.x("other", type);
  if (!c.has("rounding_mode")) return {c.one("Div", {x, y})};
  if (c.s("rounding_mode") == "floor") return {floor_divided(c, x, y)};
  const std::string quotient = c.one("Div", {x, y});
  if (!at::isFloatingType(type)) return {quotient};
  return {c.one("Mul", {c.one("Sign", {quotient}), c.one("Floor", {c.one("Abs", {quotient})})})};
}

Names floor_divide(C c) {
  return {floor_divided(c, c.x("self", c.out_type()), c.x("other", c.out_type()))};
}

Names remainder(C c) {
  const std::string x = c.x("self", c.out_type()), y = c.x("other", c.out_type());
  if (!at::isFloatingType(c.out_type())) return {c.one("Mod", {x, y})};
  return {c.one("Sub", {x, c.one("Mul", {y, c.one("Floor", {c.one("Div", {x, y})})})})};
}

Names power(C c) {
  const bool numbers = c.takes("a");
  const std::string_view base = numbers ? "a" : "self", exponent = numbers ? "b" : "exponent";
  const at::ScalarType type = c.out_type();
  const std::string x = c.x(base, type);
  if (c.is_fixed(exponent) && example_of(c.arg(exponent), 0).isScalar()) {
    const double e = c.d(exponent);
    if (e == 2) return {c.one("Mul", {x, x})};
    if (e == 0.5) return {c.one("Sqrt", {x})};
    if (e == 1) return {x};
  }
  return {c.one("Pow", {x, c.x(exponent, type)})};
}

Names clamp(C c) {
  const auto bound = [&](std::string_view name) {
    return c.has(name) ? c.x(name, c.out_type()) : std::string();
  };
  const std::string x = c.x("self", c.out_type());
  const bool tensors = (c.has("min") && example_of(c.arg("min"), 0).isTensor()) ||
                       (c.has("max") && example_of(c.arg("max"), 0).isTensor());
  if (!tensors)
    return {
        c.one("Clip", {x, c.takes("min") ? bound("min") : "", c.takes("max") ? bound("max") : ""})};
  std::string result = x;
  if (c.has("min")) result = c.one("Max", {result, bound("min")});
  if (c.has("max")) result = c.one("Min", {result, bound("max")});
  return {result};
}

Names gelu(C c) {
  return {c.gelu(c.x("self", c.out_type()), c.has("approximate") && c.s("approximate") == "tanh")};
}

Names hard_swish(C c) {
  if (c.g.opset() >= 14) return {c.unary("HardSwish")};
  const std::string x = c.x("self");
  return {c.one("Mul", {x, c.one("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}})})};
}

Names softplus(C c) {
  const double beta = c.d("beta");
  const std::string x = c.x("self");
  if (beta == 1) return {c.one("Softplus", {x})};
  return {
      c.one("Div", {c.one("Softplus", {c.one("Mul", {x, c.constant(beta)})}), c.constant(beta)})};
}

Names lerp(C c) {
  const std::string a = c.x("self", c.out_type()), b = c.x("end", c.out_type());
  return {c.one("Add", {a, c.one("Mul", {c.x("weight", c.out_type()), c.one("Sub", {b, a})})})};
}

Names add_product(C c, std::string_view op) {
  std::string part = c.one(op, {c.x("tensor1", c.out_type()), c.x("tensor2", c.out_type())});
  if (c.d("value") != 1) part = c.one("Mul", {part, c.constant(c.d("value"))});
  return {c.one("Add", {c.x("self", c.out_type()), part})};
}

Names where(C c) {
  if (!c.takes("self")) {
    const std::string places = c.one("NonZero", {c.x("condition")});
    Names parts;
    const std::int64_t rank = c.rank("condition");
    for (std::int64_t d = 0; d < rank; ++d)
      parts.push_back(c.one("Gather", {places, c.g.integer(d)}, {{"axis", std::int64_t{0}}}));
    return parts;
  }
  return {c.one("Where", {c.x("condition", at::kBool), c.x("self", c.out_type()),
                          c.x("other", c.out_type())})};
}

Names to_type(C c) {
  return {c.x(c.schema().arguments()[0].name(), c.out_type())};
}

/// A tensor's one element as a number.
Names to_number(C c) {
  const std::string name = c.g.cast(c.x(c.schema().arguments()[0].name()),
                                    c.type(c.schema().arguments()[0].name()), c.out_type());
  return {c.one("Reshape", {name, c.g.ints({1})})};
}

Names log_base(C c, double base) {
  return {c.one("Mul", {c.unary("Log"), c.constant(1 / std::log(base))})};
}

Names relu6(C c) {
  return {c.one("Clip", {c.x("self"), c.constant(0), c.constant(6)})};
}
Names hardtanh(C c) {
  return {c.one("Clip", {c.x("self"), c.x("min_val", c.out_type()), c.x("max_val", c.out_type())})};
}
Names silu(C c) {
  const std::string x = c.x("self");
  return {c.one("Mul", {x, c.one("Sigmoid", {x})})};
}
Names mish(C c) {
  const std::string x = c.x("self");
  if (c.g.opset() >= 18) return {c.one("Mish", {x})};
  return {c.one("Mul", {x, c.one("Tanh", {c.one("Softplus", {x})})})};
}
Names log_sigmoid(C c) {
  return {c.one("Neg", {c.one("Softplus", {c.one("Neg", {c.x("self")})})})};
}
Names tanh_shrink(C c) {
  const std::string x = c.x("self");
  return {c.one("Sub", {x, c.one("Tanh", {x})})};
}
Names threshold(C c) {
  const std::string x = c.x("self", c.out_type());
  return {c.one("Where", {c.one("Greater", {x, c.x("threshold", c.out_type())}), x,
                          c.x("value", c.out_type())})};
}
Names elu(C c) {
  if (c.d("scale") == 1 && c.d("input_scale") == 1)
    return {c.unary("Elu", {{"alpha", c.d("alpha")}})};
  const std::string x = c.x("self");
  const std::string inner = c.one("Mul", {x, c.constant(c.d("input_scale"))});
  const std::string negative = c.one(
      "Mul", {c.one("Sub", {c.one("Exp", {inner}), c.constant(1)}), c.constant(c.d("alpha"))});
  return {c.one("Mul", {c.one("Where", {c.one("Greater", {x, c.constant(0)}), x, negative}),
                        c.constant(c.d("scale"))})};
}
Names prelu(C c) {
  std::string weight = c.x("weight");
  if (c.example("weight").numel() > 1 && c.rank() > 2) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(c.rank() - 1), 1);
    sizes[0] = c.example("weight").numel();
    weight = c.one("Reshape", {weight, c.g.ints(sizes)});
  }
  return {c.one("PRelu", {c.x("self"), weight})};
}
Names glu(C c) {
  if (c.fixed_size("self", c.dim()) == 0) return {c.x()};
  const Names halves = c.g.ops(
      "Split", {c.x("self")},
      c.g.opset() >= 18 ? OnnxAttributes{{"axis", c.dim()}, {"num_outputs", std::int64_t{2}}}
                        : OnnxAttributes{{"axis", c.dim()}},
      2);
  return {c.one("Mul", {halves[0], c.one("Sigmoid", {halves[1]})})};
}

Names rsub(C c) {
  std::string x = c.x("self", c.out_type());
  if (c.has("alpha") && c.d("alpha") != 1) x = c.one("Mul", {x, c.constant(c.d("alpha"))});
  return {c.one("Sub", {c.x("other", c.out_type()), x})};
}
Names atan2(C c) {
  const std::string y = c.x("self", c.out_type()), x = c.x("other", c.out_type());
  const std::string zero = c.constant(0), pi = c.constant(std::numbers::pi);
  const std::string angle = c.one("Atan", {c.one("Div", {y, x})});
  const std::string turn = c.one("Where", {c.one("Less", {y, zero}), c.one("Neg", {pi}), pi});
  const std::string left =
      c.one("Where", {c.one("Less", {x, zero}), c.one("Add", {angle, turn}), angle});
  const std::string both = c.one("And", {c.one("Equal", {x, zero}), c.one("Equal", {y, zero})});
  return {c.one("Where", {both, zero, left})};
}
Names round(C c) {
  const double scale = c.takes("decimals") ? std::pow(10.0, c.d("decimals")) : 1;
  if (!c.is_float() || scale == 1) return {c.is_float() ? c.unary("Round") : c.x("self")};
  return {c.one("Div", {c.one("Round", {c.one("Mul", {c.x("self"), c.constant(scale)})}),
                        c.constant(scale)})};
}
Names trunc(C c) {
  const std::string x = c.x("self");
  return {c.one("Mul", {c.one("Sign", {x}), c.one("Floor", {c.one("Abs", {x})})})};
}
Names whole(C c, std::string_view op) {
  if (!c.is_float()) return {c.x("self")};
  return {c.g.cast(c.one(op, {c.x("self")}), c.type(), c.out_type())};
}
Names nan_to_num(C c) {
  const std::string x = c.x("self");
  if (!c.is_float()) return {x};
  const double most = c.type() == at::kFloat    ? std::numeric_limits<float>::max()
                      : c.type() == at::kDouble ? std::numeric_limits<double>::max()
                      : c.type() == at::kHalf   ? std::numeric_limits<c10::Half>::max()
                                                : std::numeric_limits<c10::BFloat16>::max();
  const std::string low = c.constant(c.has("neginf") ? c.d("neginf") : -most),
                    high = c.constant(c.has("posinf") ? c.d("posinf") : most);
  std::string y =
      c.one("Where", {c.one("IsNaN", {x}), c.constant(c.has("nan") ? c.d("nan") : 0), x});
  y = c.one("Where", {c.one("IsInf", {x}, {{"detect_negative", std::int64_t{0}}}), high, y});
  return {c.one("Where", {c.one("IsInf", {x}, {{"detect_positive", std::int64_t{0}}}), low, y})};
}

#define MEZZO_UNARY(NAME, OP)                        \
  Row {                                              \
    NAME, 13, [](C c) { return Names{c.unary(OP)}; } \
  }
#define MEZZO_BINARY(NAME, OP)                      \
  Row {                                             \
    NAME, 13, [](C c) { return arithmetic(c, OP); } \
  }

/// Times two to the power of the other.
Names shifted_left(C c) {
  const std::string x = c.x("self", at::kLong), by = c.x("other", at::kLong);
  const std::string power = c.one("Pow", {c.g.integer(2), by});
  return {c.g.cast(c.one("Mul", {x, power}), at::kLong, c.out_type())};
}

/// Divided by it, rounded down.
Names shifted_right(C c) {
  const std::string x = c.x("self", at::kLong), by = c.x("other", at::kLong);
  const std::string power = c.one("Pow", {c.g.integer(2), by});
  const std::string whole = c.one("Sub", {x, c.one("Mod", {x, power})});
  return {c.g.cast(c.one("Div", {whole, power}), at::kLong, c.out_type())};
}

Names sinc(C c) {
  const std::string x = c.one("Mul", {c.x("self", c.out_type()), c.constant(std::numbers::pi)});
  const std::string is_zero = c.one("Equal", {x, c.constant(0)});
  const std::string quotient = c.one("Div", {c.one("Sin", {x}), x});
  return {c.one("Where", {is_zero, c.constant(1), quotient})};
}

constexpr Row kElementwise[] = {
    MEZZO_UNARY("acos arccos", "Acos"),
    MEZZO_UNARY("acosh arccosh", "Acosh"),
    MEZZO_UNARY("asin arcsin", "Asin"),
    MEZZO_UNARY("asinh arcsinh", "Asinh"),
    MEZZO_UNARY("atan arctan", "Atan"),
    MEZZO_UNARY("atanh arctanh", "Atanh"),
    MEZZO_UNARY("special_expit sigmoid", "Sigmoid"),
    MEZZO_UNARY("abs absolute", "Abs"),
    MEZZO_UNARY("cos", "Cos"),
    MEZZO_UNARY("cosh", "Cosh"),
    MEZZO_UNARY("sin", "Sin"),
    MEZZO_UNARY("sinh", "Sinh"),
    MEZZO_UNARY("tan", "Tan"),
    MEZZO_UNARY("tanh", "Tanh"),
    MEZZO_UNARY("erf", "Erf"),
    MEZZO_UNARY("exp", "Exp"),
    MEZZO_UNARY("log", "Log"),
    MEZZO_UNARY("neg negative", "Neg"),
    MEZZO_UNARY("reciprocal", "Reciprocal"),
    MEZZO_UNARY("relu", "Relu"),
    MEZZO_UNARY("sqrt", "Sqrt"),
    MEZZO_UNARY("sign sgn", "Sign"),
    MEZZO_BINARY("add", "Add"),
    MEZZO_BINARY("sub subtract", "Sub"),
    MEZZO_BINARY("mul multiply", "Mul"),
    {"div divide true_divide", 13, divide},
    {"floor_divide floordiv", 13, floor_divide},
    {"remainder", 13, remainder},
    {"fmod", 13,
     [](C c) {
       return Names{c.one("Mod", {c.x("self", c.out_type()), c.x("other", c.out_type())},
                          {{"fmod", std::int64_t{1}}})};
     }},
    {"rsub", 13, rsub},
    {"pow float_power", 13, power},
    {"lerp", 13, lerp},
    {"sinc", 13, sinc},
    {"__lshift__ bitwise_left_shift", 13, shifted_left},
    {"__rshift__ bitwise_right_shift", 13, shifted_right},
    {"square", 13,
     [](C c) {
       const std::string x = c.x("self", c.out_type());
       return Names{c.one("Mul", {x, x})};
     }},
    {"positive", 13, [](C c) { return Names{c.x("self")}; }},
    {"addcmul", 13, [](C c) { return add_product(c, "Mul"); }},
    {"addcdiv", 13, [](C c) { return add_product(c, "Div"); }},
    {"rsqrt", 13, [](C c) { return Names{c.one("Reciprocal", {c.unary("Sqrt")})}; }},
    {"exp2", 13,
     [](C c) {
       return Names{c.one("Pow", {c.constant(2), c.x("self", c.out_type())})};
     }},
    {"expm1", 13,
     [](C c) {
       return Names{c.one("Sub", {c.unary("Exp"), c.constant(1)})};
     }},
    {"log1p", 13,
     [](C c) {
       return Names{c.one("Log", {c.one("Add", {c.x("self", c.out_type()), c.constant(1)})})};
     }},
    {"log2", 13, [](C c) { return log_base(c, 2); }},
    {"log10", 13, [](C c) { return log_base(c, 10); }},
    {"erfc", 13,
     [](C c) {
       return Names{c.one("Sub", {c.constant(1), c.unary("Erf")})};
     }},
    {"floor", 13, [](C c) { return whole(c, "Floor"); }},
    {"ceil", 13, [](C c) { return whole(c, "Ceil"); }},
    {"round", 13, round},
    {"trunc fix", 13, trunc},
    {"frac", 13,
     [](C c) {
       return Names{c.one("Sub", {c.x("self"), trunc(c)[0]})};
     }},
    {"clamp clip clamp_min clamp_max", 13, clamp},
    {"prim::abs", 13, [](C c) { return Names{c.unary("Abs")}; }},
    {"prim::max", 13, [](C c) { return extreme_number(c, "Max"); }},
    {"prim::min", 13, [](C c) { return extreme_number(c, "Min"); }},
    {"__range_length", 13, range_length},
    {"__derive_index", 13,
     [](C c) {
       return Names{c.one("Add", {c.x("start"), c.one("Mul", {c.x("idx"), c.x("step")})})};
     }},
    {"maximum", 13, [](C c) { return binary(c, "Max"); }},
    {"minimum", 13, [](C c) { return binary(c, "Min"); }},
    {"fmax", 13, [](C c) { return number_among(c, "Max"); }},
    {"fmin", 13, [](C c) { return number_among(c, "Min"); }},
    {"atan2 arctan2", 13, atan2},
    {"gelu", 13, gelu},
    {"silu", 13, silu},
    {"mish", 13, mish},
    {"hardswish", 13, hard_swish},
    {"hardsigmoid", 13,
     [](C c) {
       return Names{c.unary("HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}})};
     }},
    {"hardtanh", 13, hardtanh},
    {"relu6", 13, relu6},
    {"elu", 13, elu},
    {"celu", 13,
     [](C c) {
       return Names{c.unary("Celu", {{"alpha", c.d("alpha")}})};
     }},
    {"selu", 13, [](C c) { return Names{c.unary("Selu")}; }},
    {"prelu _prelu_kernel", 13, prelu},
    {"leaky_relu", 13,
     [](C c) {
       return Names{c.unary("LeakyRelu", {{"alpha", c.d("negative_slope")}})};
     }},
    {"softplus", 13, softplus},
    {"log_sigmoid", 13, log_sigmoid},
    {"tanhshrink", 13, tanh_shrink},
    {"threshold", 13, threshold},
    {"glu", 13, glu},
    {"softshrink", 13,
     [](C c) {
       return Names{c.unary("Shrink", {{"lambd", c.d("lambd")}, {"bias", c.d("lambd")}})};
     }},
    {"hardshrink", 13,
     [](C c) {
       return Names{c.unary("Shrink", {{"lambd", c.d("lambd")}, {"bias", 0.0}})};
     }},
    {"logit", 13,
     [](C c) {
       std::string x = c.x("self");
       if (c.has("eps")) x = c.one("Clip", {x, c.constant(c.d("eps")), c.constant(1 - c.d("eps"))});
       return Names{c.one("Log", {c.one("Div", {x, c.one("Sub", {c.constant(1), x})})})};
     }},
    {"deg2rad", 13,
     [](C c) {
       return Names{c.one("Mul", {c.x("self", c.out_type()), c.constant(std::numbers::pi / 180)})};
     }},
    {"rad2deg", 13,
     [](C c) {
       return Names{c.one("Mul", {c.x("self", c.out_type()), c.constant(180 / std::numbers::pi)})};
     }},
    {"hypot", 13,
     [](C c) {
       const std::string a = c.x("self", c.out_type()), b = c.x("other", c.out_type());
       return Names{c.one("Sqrt", {c.one("Add", {c.one("Mul", {a, a}), c.one("Mul", {b, b})})})};
     }},
    {"where", 13, where},
    {"nan_to_num", 13, nan_to_num},
    {"masked_fill", 13,
     [](C c) {
       return Names{c.one("Where", {c.x("mask", at::kBool), c.x("value", c.out_type()),
                                    c.x("self", c.out_type())})};
     }},
    {"to type_as _to_copy _cast_Float float", 13, to_type},
    {"item Int Float Bool IntImplicit FloatImplicit ScalarImplicit", 13, to_number},
    {"_local_scalar_dense", 13, to_number},
};

#undef MEZZO_UNARY
#undef MEZZO_BINARY

}  // namespace

std::span<const Row> elementwise_rows() {
  return kElementwise;
}

}  // namespace mezzo::deploy::detail
