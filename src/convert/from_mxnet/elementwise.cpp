// Operators that compute each element from the elements at its place.
#include <array>
#include <cmath>
#include <numbers>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

Operands same(Call& call) {
  return {call.input(0)};
}

// The ONNX operator of the same meaning, by MXNet's name.
struct Renamed {
  std::string_view op;
  const char* onnx;
};

constexpr std::array<Renamed, 26> kUnary{{{"relu", "Relu"},
                                          {"sigmoid", "Sigmoid"},
                                          {"tanh", "Tanh"},
                                          {"softsign", "Softsign"},
                                          {"exp", "Exp"},
                                          {"log", "Log"},
                                          {"sqrt", "Sqrt"},
                                          {"abs", "Abs"},
                                          {"ceil", "Ceil"},
                                          {"floor", "Floor"},
                                          {"sign", "Sign"},
                                          {"sin", "Sin"},
                                          {"cos", "Cos"},
                                          {"tan", "Tan"},
                                          {"arcsin", "Asin"},
                                          {"arccos", "Acos"},
                                          {"arctan", "Atan"},
                                          {"sinh", "Sinh"},
                                          {"cosh", "Cosh"},
                                          {"arcsinh", "Asinh"},
                                          {"arccosh", "Acosh"},
                                          {"arctanh", "Atanh"},
                                          {"reciprocal", "Reciprocal"},
                                          {"negative", "Neg"},
                                          {"erf", "Erf"},
                                          {"softrelu", "Softplus"}}};

const char* onnx_of(Call& call, std::span<const Renamed> names, std::string_view op) {
  for (const Renamed& row : names)
    if (row.op == op) return row.onnx;
  call.refuse("no such function is known here; expected one of ONNX's");
}

Operands unary(Call& call) {
  return {call.map(onnx_of(call, kUnary, call.node().op), call.input(0))};
}

Operands activation(Call& call) {
  const std::string kind = call.text("act_type", "relu");
  const Operand& x = call.input(0);
  if (kind == "mish") return {call.broadcast("Mul", x, call.map("Tanh", call.map("Softplus", x)))};
  if (kind == "log_sigmoid") return {call.map("Neg", call.map("Softplus", call.map("Neg", x)))};
  return {call.map(onnx_of(call, kUnary, kind), call.input(0))};
}

Operands square(Call& call) {
  return {call.broadcast("Mul", call.input(0), call.input(0))};
}

Operands rsqrt(Call& call) {
  return {call.map("Reciprocal", call.map("Sqrt", call.input(0)))};
}

Operands log1p(Call& call) {
  return {call.map("Log", call.broadcast("Add", call.input(0), 1))};
}

Operands expm1(Call& call) {
  return {call.broadcast("Sub", call.map("Exp", call.input(0)), 1)};
}

Operands log2(Call& call) {
  return {call.broadcast("Mul", call.map("Log", call.input(0)), 1 / std::numbers::ln2)};
}

Operands log10(Call& call) {
  return {call.broadcast("Mul", call.map("Log", call.input(0)), 1 / std::numbers::ln10)};
}

Operands cbrt(Call& call) {
  const Operand size = call.broadcast("Pow", call.map("Abs", call.input(0)), 1.0 / 3);
  return {call.broadcast("Mul", call.map("Sign", call.input(0)), size)};
}

Operands degrees(Call& call) {
  return {call.broadcast("Mul", call.input(0), 180 / std::numbers::pi)};
}

Operands radians(Call& call) {
  return {call.broadcast("Mul", call.input(0), std::numbers::pi / 180)};
}

// Halves go away from zero.
Operands round_away(Call& call) {
  const Operand size = call.broadcast("Add", call.map("Abs", call.input(0)), 0.5);
  return {call.broadcast("Mul", call.map("Sign", call.input(0)), call.map("Floor", size))};
}

// Halves go down.
Operands rint(Call& call) {
  return {call.map("Ceil", call.broadcast("Sub", call.input(0), 0.5))};
}

Operands trunc(Call& call) {
  const Operand size = call.map("Floor", call.map("Abs", call.input(0)));
  return {call.broadcast("Mul", call.map("Sign", call.input(0)), size)};
}

Operands hard_sigmoid(Call& call) {
  return {call.map("HardSigmoid", call.input(0),
                   {{"alpha", static_cast<float>(call.number("alpha", 0.2))},
                    {"beta", static_cast<float>(call.number("beta", 0.5))}})};
}

Operands clip(Call& call) {
  const Operand& x = call.input(0);
  const Operand low = call.writer.number(call.number("a_min", -HUGE_VAL), x.element);
  const Operand high = call.writer.number(call.number("a_max", HUGE_VAL), x.element);
  return {call.add("Clip", {x, low, high}, {}, form_of(x))};
}

Operands smooth_l1(Call& call) {
  const double square_of_sigma = std::pow(call.number("scalar", 1), 2);
  const Operand& x = call.input(0);
  const Operand size = call.map("Abs", x);
  const Operand near = call.broadcast("Mul", call.broadcast("Mul", x, x), 0.5 * square_of_sigma);
  const Operand far = call.broadcast("Sub", size, 0.5 / square_of_sigma);
  const Operand limit = call.writer.number(1 / square_of_sigma, x.element);
  const Operand is_near = call.add("Less", {size, limit}, {}, {Element::kBool, x.dims});
  return {call.where(is_near, near, far)};
}

Operands cast_to(Call& call) {
  return {call.cast(call.input(0), call.dtype(Element::kFloat))};
}

Operands all_same(Call& call) {
  return call.inputs();
}

Operands sum_of_all(Call& call) {
  if (call.input_count() == 1) return {call.input(0)};
  std::optional<Dims> dims = call.input(0).dims;
  for (const Operand& input : call.inputs()) dims = broadcast_dims(dims, input.dims);
  return {call.add("Sum", call.inputs(), {}, {call.input(0).element, dims})};
}

// Two operands.

using Binary = Operand (*)(Call&, const Operand&, const Operand&);

template <const char* Op>
Operand plain(Call& call, const Operand& a, const Operand& b) {
  return call.broadcast(Op, a, b);
}

template <const char* Op>
Operand compared(Call& call, const Operand& a, const Operand& b) {
  const Operand truth = call.add(Op, {a, b}, {}, {Element::kBool, broadcast_dims(a.dims, b.dims)});
  return call.cast(truth, a.element);
}

Operand differs(Call& call, const Operand& a, const Operand& b) {
  const Form form{Element::kBool, broadcast_dims(a.dims, b.dims)};
  const Operand truth = call.add("Not", {call.add("Equal", {a, b}, {}, form)}, {}, form);
  return call.cast(truth, a.element);
}

template <const char* Op>
Operand logical(Call& call, const Operand& a, const Operand& b) {
  const Form form{Element::kBool, broadcast_dims(a.dims, b.dims)};
  const Operand truth =
      call.add(Op, {call.cast(a, Element::kBool), call.cast(b, Element::kBool)}, {}, form);
  return call.cast(truth, a.element);
}

Operand modulo(Call& call, const Operand& a, const Operand& b) {
  return call.modulo(a, b);
}

Operand hypotenuse(Call& call, const Operand& a, const Operand& b) {
  const Operand sum =
      call.broadcast("Add", call.broadcast("Mul", a, a), call.broadcast("Mul", b, b));
  return call.map("Sqrt", sum);
}

constexpr char kAdd[] = "Add", kSub[] = "Sub", kMul[] = "Mul", kDiv[] = "Div", kPow[] = "Pow",
               kMax[] = "Max", kMin[] = "Min", kEqual[] = "Equal", kGreater[] = "Greater",
               kLess[] = "Less", kGreaterOrEqual[] = "GreaterOrEqual",
               kLessOrEqual[] = "LessOrEqual", kAnd[] = "And", kOr[] = "Or", kXor[] = "Xor";

template <Binary Function>
Operands two(Call& call) {
  return {Function(call, call.input(0), call.input(1))};
}

template <Binary Function, bool Reversed = false>
Operands with_number(Call& call) {
  const Operand& x = call.input(0);
  const Operand number = call.writer.number(call.number("scalar", 1), x.element);
  return {Reversed ? Function(call, number, x) : Function(call, x, number)};
}

Operands logical_not(Call& call) {
  const Operand& x = call.input(0);
  const Form form{Element::kBool, x.dims};
  return {call.cast(call.add("Not", {call.cast(x, Element::kBool)}, {}, form), x.element)};
}

constexpr TranslationRow kElementwiseRows[] = {
    {"relu sigmoid tanh softsign exp log sqrt abs ceil floor sign sin", unary, Reads::kAll, true},
    {"cos tan arcsin arccos arctan sinh cosh arcsinh arccosh arctanh", unary, Reads::kAll, true},
    {"reciprocal negative erf", unary, Reads::kAll, true},
    {"Activation", activation, Reads::kAll, true},
    {"square", square, Reads::kAll, true},
    {"rsqrt", rsqrt, Reads::kAll, true},
    {"log1p", log1p, Reads::kAll, true},
    {"expm1", expm1, Reads::kAll, true},
    {"log2", log2, Reads::kAll, true},
    {"log10", log10, Reads::kAll, true},
    {"cbrt", cbrt, Reads::kAll, true},
    {"degrees", degrees, Reads::kAll, true},
    {"radians", radians, Reads::kAll, true},
    {"round", round_away, Reads::kAll, true},
    {"rint", rint, Reads::kAll, true},
    {"fix trunc", trunc, Reads::kAll, true},
    {"hard_sigmoid", hard_sigmoid, Reads::kAll, true},
    {"clip", clip, Reads::kAll, true},
    {"smooth_l1", smooth_l1, Reads::kAll, true},
    {"Cast", cast_to, Reads::kAll, true},
    {"logical_not", logical_not, Reads::kAll, true},
    {"_copy identity BlockGrad stop_gradient make_loss MakeLoss amp_cast", same, Reads::kAll, true},
    {"Dropout _identity_with_attr_like_rhs IdentityAttachKLSparseReg", same, Reads::kFirst, true},
    {"amp_multicast", all_same},
    {"LinearRegressionOutput MAERegressionOutput SVMOutput", same, Reads::kFirst, true},
    {"add_n ElementWiseSum", sum_of_all},
    {"elemwise_add _plus _Plus _grad_add", two<plain<kAdd>>, Reads::kAll, true},
    {"elemwise_sub _minus _Minus", two<plain<kSub>>, Reads::kAll, true},
    {"elemwise_mul _mul _Mul", two<plain<kMul>>, Reads::kAll, true},
    {"elemwise_div _div _Div", two<plain<kDiv>>, Reads::kAll, true},
    {"_power", two<plain<kPow>>, Reads::kAll, true},
    {"_maximum", two<plain<kMax>>, Reads::kAll, true},
    {"_minimum", two<plain<kMin>>, Reads::kAll, true},
    {"_mod", two<modulo>, Reads::kAll, true},
    {"_hypot", two<hypotenuse>, Reads::kAll, true},
    {"_equal broadcast_equal", two<compared<kEqual>>},
    {"_not_equal broadcast_not_equal", two<differs>},
    {"_greater broadcast_greater", two<compared<kGreater>>},
    {"_greater_equal broadcast_greater_equal", two<compared<kGreaterOrEqual>>},
    {"_lesser broadcast_lesser", two<compared<kLess>>},
    {"_lesser_equal broadcast_lesser_equal", two<compared<kLessOrEqual>>},
    {"_logical_and broadcast_logical_and", two<logical<kAnd>>},
    {"_logical_or broadcast_logical_or", two<logical<kOr>>},
    {"_logical_xor broadcast_logical_xor", two<logical<kXor>>},
    {"broadcast_add broadcast_plus", two<plain<kAdd>>},
    {"broadcast_sub broadcast_minus", two<plain<kSub>>},
    {"broadcast_mul", two<plain<kMul>>},
    {"broadcast_div", two<plain<kDiv>>},
    {"broadcast_power", two<plain<kPow>>},
    {"broadcast_maximum", two<plain<kMax>>},
    {"broadcast_minimum", two<plain<kMin>>},
    {"broadcast_mod", two<modulo>},
    {"broadcast_hypot", two<hypotenuse>},
    {"_plus_scalar", with_number<plain<kAdd>>, Reads::kAll, true},
    {"_minus_scalar", with_number<plain<kSub>>, Reads::kAll, true},
    {"_rminus_scalar", with_number<plain<kSub>, true>, Reads::kAll, true},
    {"_mul_scalar", with_number<plain<kMul>>, Reads::kAll, true},
    {"_div_scalar", with_number<plain<kDiv>>, Reads::kAll, true},
    {"_rdiv_scalar", with_number<plain<kDiv>, true>, Reads::kAll, true},
    {"_power_scalar", with_number<plain<kPow>>, Reads::kAll, true},
    {"_rpower_scalar", with_number<plain<kPow>, true>, Reads::kAll, true},
    {"_maximum_scalar", with_number<plain<kMax>>, Reads::kAll, true},
    {"_minimum_scalar", with_number<plain<kMin>>, Reads::kAll, true},
    {"_mod_scalar", with_number<modulo>, Reads::kAll, true},
    {"_rmod_scalar", with_number<modulo, true>, Reads::kAll, true},
    {"_hypot_scalar", with_number<hypotenuse>, Reads::kAll, true},
    {"_equal_scalar", with_number<compared<kEqual>>, Reads::kAll, true},
    {"_not_equal_scalar", with_number<differs>, Reads::kAll, true},
    {"_greater_scalar", with_number<compared<kGreater>>, Reads::kAll, true},
    {"_greater_equal_scalar", with_number<compared<kGreaterOrEqual>>, Reads::kAll, true},
    {"_lesser_scalar", with_number<compared<kLess>>, Reads::kAll, true},
    {"_lesser_equal_scalar", with_number<compared<kLessOrEqual>>, Reads::kAll, true},
    {"_logical_and_scalar", with_number<logical<kAnd>>, Reads::kAll, true},
    {"_logical_or_scalar", with_number<logical<kOr>>, Reads::kAll, true},
    {"_logical_xor_scalar", with_number<logical<kXor>>, Reads::kAll, true},
};

}  // namespace

std::span<const TranslationRow> elementwise_rows() {
  return kElementwiseRows;
}

}  // namespace mezzo::convert::mxnet
