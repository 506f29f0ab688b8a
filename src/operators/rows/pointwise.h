// The operator table, part: element by element.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kExp = "overflows float16 early, and errors grow with the result";
inline constexpr std::string_view kLog = "close to its pole 16 bits keep no digits";
inline constexpr std::string_view kHypot =
    "squares leave the range of float16; bfloat16 has the range";
inline constexpr std::string_view kSoftplus = "exp and log leave the range of 16 bits";
inline constexpr std::string_view kElu =
    "an exponential minus one cancels in float16; MXNet drops it from the bfloat16 lists";
inline constexpr std::string_view kSelu = "an exponential minus one cancels in 16 bits";
inline constexpr std::string_view kGelu = "follows Apex, which computes it in float";
inline constexpr std::string_view kLdexp = "powers of two leave the range of 16 bits";
inline constexpr std::string_view kArithmetic =
    "arguments must agree; a 0-dimensional tensor does not widen";
inline constexpr std::string_view kCompare = "arguments must agree before they are compared";
inline constexpr std::string_view kEqual = "arguments must have one type";
inline constexpr std::string_view kFused = "three arguments that must agree";
inline constexpr std::string_view kCross = "arguments must have one type";
inline constexpr std::string_view kActivation =
    "bounded or piecewise linear: as exact as its input";
inline constexpr std::string_view kPointwise = "element-wise and well-behaved in 16 bits";
inline constexpr std::string_view kDifference = "differences of neighbours are as exact as they";

inline constexpr std::string_view kRrelu = "LibTorch has no float16 kernel for processors";
inline constexpr std::string_view kAngle =
    "its gradient squares both arguments, which must have the wider type";

inline constexpr std::array kPointwiseRows{
    row("abs", kNeutral, "-n--", kPointwise),
    row("acos", kFloat, "fff-", kLog),
    steep_in_half(row("acosh", kNeutral, "-n--", kPointwise)),
    guarded(row("add.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("add.Tensor", kPromote, "pp--", kArithmetic))),
    steep_in_half(guarded(row("addcdiv", kPromote, "p-p-", kFused))),
    guarded(row("addcmul", kPromote, "pnp-", kFused)),
    row("allclose", kPromote, "-n--", kEqual),
    row("asin", kFloat, "fff-", kLog),
    steep_in_half(row("asinh", kNeutral, "-n--", kPointwise)),
    steep_in_half(row("atan", kNeutral, "-n--", kPointwise)),
    steep(row("atan2", kPromote, "pnp-", kAngle)),
    row("atanh", kFloat, "-f--", kLog),
    row("bitwise_and.Scalar", kNeutral, "-n--", kPointwise),
    row("bitwise_and.Scalar_Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_and.Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_left_shift.Scalar_Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_left_shift.Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_left_shift.Tensor_Scalar", kNeutral, "-n--", kPointwise),
    row("bitwise_not", kNeutral, "-n--", kPointwise),
    row("bitwise_or.Scalar", kNeutral, "-n--", kPointwise),
    row("bitwise_or.Scalar_Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_or.Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_right_shift.Scalar_Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_right_shift.Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_right_shift.Tensor_Scalar", kNeutral, "-n--", kPointwise),
    row("bitwise_xor.Scalar", kNeutral, "-n--", kPointwise),
    row("bitwise_xor.Scalar_Tensor", kNeutral, "-n--", kPointwise),
    row("bitwise_xor.Tensor", kNeutral, "-n--", kPointwise),
    row("ceil", kNeutral, "-n--", kPointwise),
    guarded(row("clamp", kNeutral, "-n--", kPointwise)),
    guarded(row("clamp.Tensor", kNeutral, "-n--", kPointwise)),
    guarded(row("copysign.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("copysign.Tensor", kPromote, "-p--", kArithmetic))),
    row("cos", kNeutral, "-n--", kPointwise),
    row("cosh", kFloat, "fff-", kExp),
    row("cross", kPromote, "ppp-", kCross),
    row("deg2rad", kNeutral, "-n--", kPointwise),
    row("diff", kNeutral, "-n--", kDifference),
    steep_in_half(row("digamma", kFloat, "-f--", kLog)),
    guarded(row("div.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(row("div.Scalar_mode", kNeutral, "-n--", kOneTensor)),
    steep_in_half(guarded(native(row("div.Tensor", kPromote, "pp--", kArithmetic)))),
    guarded(native(row("div.Tensor_mode", kPromote, "pp--", kArithmetic))),
    guarded(row("elu", kFloat, kNeutral, "-c--", kElu)),
    guarded(row("eq.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("eq.Tensor", kPromote, "pp--", kCompare))),
    row("equal", kPromote, "p---", kEqual),
    row("erf", kNeutral, "-n--", kPointwise),
    row("erfinv", kFloat, "fff-", kLog),
    row("exp", kFloat, "fff-", kExp),
    row("expm1", kFloat, "fff-", kExp),
    row("fix", kNeutral, "-n--", kPointwise),
    row("floor", kNeutral, "-n--", kPointwise),
    guarded(native(row("floor_divide", kPromote, "-n--", kArithmetic))),
    guarded(row("floor_divide.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("fmax", kPromote, "-p--", kArithmetic))),
    guarded(native(row("fmin", kPromote, "-p--", kArithmetic))),
    guarded(row("fmod.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("fmod.Tensor", kPromote, "-p--", kArithmetic))),
    row("gcd", kNeutral, "-n--", kPointwise),
    guarded(row("ge.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("ge.Tensor", kPromote, "pp--", kCompare))),
    row("gelu", kFloat, "fn--", kGelu),
    guarded(row("gt.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("gt.Tensor", kPromote, "pp--", kCompare))),
    row("hardsigmoid", kNeutral, "-n--", kActivation),
    guarded(row("hypot", kFloat, kPromote, "-f--", kHypot)),
    row("isfinite", kNeutral, "-n--", kPointwise),
    row("isinf", kNeutral, "-n--", kPointwise),
    row("isnan", kNeutral, "-n--", kPointwise),
    row("isneginf", kNeutral, "-n--", kPointwise),
    row("isposinf", kNeutral, "-n--", kPointwise),
    row("lcm", kNeutral, "-n--", kPointwise),
    row("ldexp.Tensor", kFloat, "-f--", kLdexp),
    guarded(row("le.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("le.Tensor", kPromote, "pp--", kCompare))),
    guarded(row("leaky_relu", kNeutral, "-n--", kActivation)),
    guarded(row("lerp.Scalar", kPromote, "----", kEqual)),
    row("lerp.Tensor", kPromote, "----", kEqual),
    row("lgamma", kFloat, "-f--", kLog),
    row("linalg_cross", kPromote, "----", kCross),
    row("log", kFloat, "fff-", kLog),
    row("log10", kFloat, "fff-", kLog),
    row("log1p", kFloat, "-ff-", kLog),
    row("log2", kFloat, "fff-", kLog),
    native(row("logical_and", kPromote, "-p--", kCompare)),
    row("logical_not", kNeutral, "-n--", kPointwise),
    native(row("logical_or", kPromote, "-p--", kCompare)),
    native(row("logical_xor", kPromote, "-p--", kCompare)),
    guarded(row("lt.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("lt.Tensor", kPromote, "pp--", kCompare))),
    guarded(native(row("maximum", kPromote, "-p--", kArithmetic))),
    guarded(native(row("minimum", kPromote, "-p--", kArithmetic))),
    row("mish", kNeutral, "-n--", kActivation),
    guarded(row("mul.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("mul.Tensor", kPromote, "pp--", kArithmetic))),
    guarded(row("nan_to_num", kNeutral, "-n--", kPointwise)),
    guarded(row("ne.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("ne.Tensor", kPromote, "pp--", kCompare))),
    row("neg", kNeutral, "-n--", kPointwise),
    steep(guarded(row("pow.Scalar", kFloat, "fff-", kExp))),
    steep(guarded(row("pow.Tensor_Scalar", kFloat, "fff-", kExp))),
    steep(guarded(row("pow.Tensor_Tensor", kFloat, "fff-", kExp))),
    row("rad2deg", kNeutral, "-n--", kPointwise),
    steep_in_half(row("reciprocal", kFloat, "fff-", kExp)),
    row("relu", kNeutral, "-n--", kActivation),
    guarded(row("remainder.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(row("remainder.Scalar_Tensor", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("remainder.Tensor", kPromote, "-p--", kArithmetic))),
    steep_in_half(row("polygamma", kFloat, "----", kLog)),
    row("round", kNeutral, "-n--", kPointwise),
    row("round.decimals", kNeutral, "-n--", kPointwise),
    lacks_low(row("rrelu", kFloat, "-n--", kRrelu)),
    steep_in_half(row("rsqrt", kFloat, "fff-", kExp)),
    guarded(row("rsub.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("rsub.Tensor", kPromote, "-n--", kArithmetic))),
    row("selu", kFloat, "-c--", kSelu),
    row("sigmoid", kNeutral, "-n--", kActivation),
    row("sign", kNeutral, "-n--", kPointwise),
    row("sin", kNeutral, "-n--", kPointwise),
    steep(row("sinc", kNeutral, "----", kPointwise)),
    row("sinh", kFloat, "fff-", kExp),
    guarded(row("softplus", kFloat, "fcf-", kSoftplus)),
    row("sqrt", kNeutral, "-n--", kPointwise),
    row("square", kFloat, "-f--", kExp),
    guarded(row("sub.Scalar", kNeutral, "-n--", kOneTensor)),
    guarded(native(row("sub.Tensor", kPromote, "pp--", kArithmetic))),
    steep_in_half(row("tan", kFloat, "fff-", kExp)),
    row("tanh", kNeutral, "-n--", kActivation),
    guarded(row("true_divide.Scalar", kNeutral, "----", kOneTensor)),
    guarded(native(row("true_divide.Tensor", kPromote, "p---", kArithmetic))),
    row("trunc", kNeutral, "-n--", kPointwise),
};

}  // namespace mezzo::rows
