// Comparisons, logic, and questions about single elements.
#include <limits>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// The type in which two operands meet.
at::ScalarType common_type(C c, std::string_view a = "self", std::string_view b = "other") {
  const c10::IValue x = example_of(c.arg(a), 0), y = example_of(c.arg(b), 0);
  if (x.isTensor() && y.isTensor()) return at::result_type(x.toTensor(), y.toTensor());
  if (x.isTensor())
    return y.isScalar() ? at::result_type(x.toTensor(), y.toScalar()) : x.toTensor().scalar_type();
  if (y.isTensor()) return at::result_type(x.toScalar(), y.toTensor());
  return c.type(a) == at::kDouble || c.type(b) == at::kDouble ? at::kDouble : at::kLong;
}

Names compare(C c, std::string_view op, bool negate = false) {
  at::ScalarType type = common_type(c);
  if (type == at::kBool && op != "Equal") type = at::kInt;
  std::string result = c.one(op, {c.x("self", type), c.x("other", type)});
  if (negate) result = c.one("Not", {result});
  return {c.g.cast(result, at::kBool, c.out_type())};
}

Names logic(C c, std::string_view op) {
  return {c.one(op, {c.x("self", at::kBool), c.x("other", at::kBool)})};
}

Names bit_logic(C c, std::string_view logical, std::string_view bitwise) {
  if (c.out_type() == at::kBool) return logic(c, logical);
  if (c.g.opset() < 18) c.refuse("it needs opset 18 for integers; set options.opset");
  return {c.one(bitwise, {c.x("self", c.out_type()), c.x("other", c.out_type())})};
}
Names is_close(C c) {
  const at::ScalarType type = c.is_float() ? c.type() : at::kFloat;
  const std::string a = c.x("self", type), b = c.x("other", type);
  const std::string bound =
      c.one("Add", {c.g.number(c.d("atol"), type),
                    c.one("Mul", {c.g.number(c.d("rtol"), type), c.one("Abs", {b})})});
  const std::string off = c.one("Abs", {c.one("Sub", {a, b})});
  // An infinite bound is near to nothing but itself.
  const std::string finite =
      c.one("Less", {off, c.g.number(std::numeric_limits<double>::infinity(), type)});
  const std::string near = c.one("And", {finite, c.one("LessOrEqual", {off, bound})});
  const std::string close = c.one("Or", {c.one("Equal", {a, b}), near});
  if (!c.has("equal_nan") || !c.b("equal_nan")) return {close};
  return {c.one("Or", {close, c.one("And", {c.one("IsNaN", {a}), c.one("IsNaN", {b})})})};
}
Names is_finite(C c) {
  const std::string x = c.x("self");
  return {c.one("Not", {c.one("Or", {c.one("IsInf", {x}), c.one("IsNaN", {x})})})};
}
constexpr Row kComparisons[] = {
    {"eq", 13, [](C c) { return compare(c, "Equal"); }},
    {"ne not_equal", 13, [](C c) { return compare(c, "Equal", true); }},
    {"lt less", 13, [](C c) { return compare(c, "Less"); }},
    {"gt greater", 13, [](C c) { return compare(c, "Greater"); }},
    {"le less_equal", 13, [](C c) { return compare(c, "LessOrEqual"); }},
    {"ge greater_equal", 13, [](C c) { return compare(c, "GreaterOrEqual"); }},
    {"logical_and", 13, [](C c) { return logic(c, "And"); }},
    {"logical_or", 13, [](C c) { return logic(c, "Or"); }},
    {"logical_xor", 13, [](C c) { return logic(c, "Xor"); }},
    {"logical_not __not__", 13, [](C c) { return Names{c.one("Not", {c.x("self", at::kBool)})}; }},
    {"bitwise_and __and__", 13, [](C c) { return bit_logic(c, "And", "BitwiseAnd"); }},
    {"bitwise_or __or__", 13, [](C c) { return bit_logic(c, "Or", "BitwiseOr"); }},
    {"bitwise_xor __xor__", 13, [](C c) { return bit_logic(c, "Xor", "BitwiseXor"); }},
    {"bitwise_not", 13,
     [](C c) {
       if (c.out_type() == at::kBool) return Names{c.one("Not", {c.x("self")})};
       return Names{c.one("Sub", {c.one("Neg", {c.x("self")}), c.constant(1)})};
     }},
    {"isnan", 13, [](C c) { return Names{c.one("IsNaN", {c.x("self")})}; }},
    {"isinf", 13, [](C c) { return Names{c.one("IsInf", {c.x("self")})}; }},
    {"isfinite", 13, is_finite},
    {"isclose", 13, is_close},
};

}  // namespace

std::span<const Row> comparison_rows() {
  return kComparisons;
}

}  // namespace mezzo::deploy::detail
