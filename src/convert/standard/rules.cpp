#include "convert/standard/rules.h"

#include <algorithm>
#include <optional>

#include "operators/operators.h"

namespace mezzo::convert {
namespace {

constexpr CastClass kLow = CastClass::kLow;
constexpr CastClass kFloat = CastClass::kFloat;
constexpr CastClass kWidest = CastClass::kPromote;
constexpr CastClass kNeutral = CastClass::kNeutral;

constexpr std::string_view kMatrix = "matrix unit, accumulates in float";
constexpr std::string_view kSteep = "steep or singular: rounding its input changes the result";
constexpr std::string_view kReduction = "long sums lose digits and overflow";
constexpr std::string_view kNorm = "sums of squares overflow";
constexpr std::string_view kAgree = "inputs must agree";
constexpr std::string_view kChoice = "rounding would reorder what it compares";
constexpr std::string_view kMove = "moves values, exact in any type";

// Sorted by name.
constexpr Rule kRules[] = {
    {"Abs", "", kNeutral, true, kMove},
    {"Acos", "acos", kFloat, false, kSteep},
    {"Acosh", "", kFloat, false, kSteep},
    {"Add", "add.Tensor", kWidest, false, kAgree},
    {"AffineGrid", "", kFloat, false, "coordinates need more digits than half has"},
    {"ArgMax", "", kWidest, false, kChoice},
    {"ArgMin", "", kWidest, false, kChoice},
    {"Asin", "asin", kFloat, false, kSteep},
    {"Asinh", "", kFloat, false, kSteep},
    {"Atanh", "", kFloat, false, kSteep},
    {"Attention", "scaled_dot_product_attention", kLow, false, kMatrix},
    {"Celu", "", kFloat, false, kSteep},
    {"Clip", "", kNeutral, true, kMove},
    {"Concat", "cat", kWidest, true, kAgree},
    {"Conv", "convolution", kLow, false, kMatrix},
    {"ConvTranspose", "convolution", kLow, false, kMatrix},
    {"Cos", "", kFloat, false, "angles need more digits than half has"},
    {"Cosh", "cosh", kFloat, false, kSteep},
    {"CumProd", "cumprod", kFloat, false, kReduction},
    {"CumSum", "cumsum", kFloat, false, kReduction},
    {"DFT", "", kFloat, false, kReduction},
    {"DeformConv", "", kLow, false, kMatrix},
    {"DepthToSpace", "", kNeutral, true, kMove},
    {"Det", "", kFloat, false, kSteep},
    {"Div", "div.Tensor", kWidest, false, kAgree},
    {"Einsum", "einsum", kLow, false, kMatrix},
    {"Elu", "elu", kFloat, false, kSteep},
    {"Equal", "", kWidest, false, kChoice},
    {"Exp", "exp", kFloat, false, "overflows half above 11.09"},
    {"Expand", "", kNeutral, true, kMove},
    {"Flatten", "", kNeutral, true, kMove},
    {"GRU", "gru.input", kLow, false, kMatrix},
    {"Gather", "", kNeutral, true, kMove},
    {"GatherElements", "", kNeutral, true, kMove},
    {"GatherND", "", kNeutral, true, kMove},
    {"Gelu", "gelu", kFloat, false, kSteep},
    {"Gemm", "addmm", kLow, false, kMatrix},
    {"GlobalMaxPool", "", kNeutral, true, kMove},
    {"Greater", "", kWidest, false, kChoice},
    {"GreaterOrEqual", "", kWidest, false, kChoice},
    {"GridSample", "grid_sampler", kFloat, false, "coordinates need more digits than half has"},
    {"GroupNormalization", "group_norm", kFloat, false, kNorm},
    {"Identity", "", kNeutral, true, kMove},
    {"InstanceNormalization", "instance_norm", kFloat, false, kNorm},
    {"LRN", "", kFloat, false, kNorm},
    {"LSTM", "lstm.input", kLow, false, kMatrix},
    {"LayerNormalization", "layer_norm", kFloat, false, kNorm},
    {"Less", "", kWidest, false, kChoice},
    {"LessOrEqual", "", kWidest, false, kChoice},
    {"Log", "log", kFloat, false, kSteep},
    {"LogSoftmax", "log_softmax.int", kFloat, false, "a sum of exponentials"},
    {"LpNormalization", "norm.Scalar", kFloat, false, kNorm},
    {"LpPool", "", kFloat, false, kNorm},
    {"MatMul", "matmul", kLow, false, kMatrix},
    {"Max", "", kWidest, true, kAgree},
    {"MaxPool", "", kNeutral, true, kMove},
    {"MaxRoiPool", "", kFloat, false, "coordinates need more digits than half has"},
    {"Mean", "", kWidest, false, kAgree},
    {"MeanVarianceNormalization", "", kFloat, false, kNorm},
    {"Min", "", kWidest, true, kAgree},
    {"Mod", "", kWidest, false, kAgree},
    {"Mul", "mul.Tensor", kWidest, false, kAgree},
    {"Neg", "", kNeutral, true, kMove},
    {"NegativeLogLikelihoodLoss", "nll_loss", kFloat, false, kReduction},
    {"PRelu", "prelu", kLow, false, kMatrix},
    {"Pad", "", kNeutral, true, kMove},
    {"Pow", "pow.Tensor_Tensor", kFloat, false, kSteep},
    {"RMSNormalization", "rms_norm", kFloat, false, kNorm},
    {"RNN", "rnn_tanh.input", kLow, false, kMatrix},
    {"Reciprocal", "reciprocal", kFloat, false, kSteep},
    {"ReduceL1", "", kFloat, false, kReduction},
    {"ReduceL2", "", kFloat, false, kReduction},
    {"ReduceLogSum", "", kFloat, false, kReduction},
    {"ReduceLogSumExp", "", kFloat, false, kReduction},
    {"ReduceMax", "", kNeutral, true, kMove},
    {"ReduceMean", "mean.dim", kFloat, false, kReduction},
    {"ReduceMin", "", kNeutral, true, kMove},
    {"ReduceProd", "prod", kFloat, false, kReduction},
    {"ReduceSum", "sum.dim_IntList", kFloat, false, kReduction},
    {"ReduceSumSquare", "", kFloat, false, kReduction},
    {"Relu", "", kNeutral, true, kMove},
    {"Reshape", "", kNeutral, true, kMove},
    {"ReverseSequence", "", kNeutral, true, kMove},
    {"RoiAlign", "", kFloat, false, "coordinates need more digits than half has"},
    {"STFT", "", kFloat, false, kReduction},
    {"Selu", "", kFloat, false, kSteep},
    {"Sign", "", kNeutral, true, kMove},
    {"Sin", "", kFloat, false, "angles need more digits than half has"},
    {"Sinh", "sinh", kFloat, false, kSteep},
    {"Slice", "", kNeutral, true, kMove},
    {"Softmax", "softmax.int", kFloat, false, "a sum of exponentials"},
    {"SoftmaxCrossEntropyLoss", "cross_entropy_loss", kFloat, false, kReduction},
    {"Softplus", "softplus", kFloat, false, kSteep},
    {"SpaceToDepth", "", kNeutral, true, kMove},
    {"Split", "", kNeutral, true, kMove},
    {"Squeeze", "", kNeutral, true, kMove},
    {"Sub", "sub.Tensor", kWidest, false, kAgree},
    {"Sum", "", kWidest, false, kAgree},
    {"Tan", "tan", kFloat, false, kSteep},
    {"Tile", "", kNeutral, true, kMove},
    {"TopK", "", kWidest, false, kChoice},
    {"Transpose", "", kNeutral, true, kMove},
    {"Unsqueeze", "", kNeutral, true, kMove},
    {"Where", "where.self", kWidest, true, kAgree},
};
static_assert(std::ranges::is_sorted(kRules, {}, &Rule::op), "bisected: keep sorted by op");

}  // namespace

std::span<const Rule> rules() {
  return kRules;
}

const Rule* find_rule(std::string_view op) {
  const Rule* found = std::ranges::lower_bound(kRules, op, {}, &Rule::op);
  return found == std::end(kRules) || found->op != op ? nullptr : found;
}

namespace {

// The row of the operator table that stands behind a rule.
const Operator* row_of(const Rule* rule) {
  if (rule == nullptr || rule->aten.empty()) return nullptr;
  const std::optional<std::size_t> row = index_of(rule->aten);
  return row ? &operators()[*row] : nullptr;
}

}  // namespace

CastClass default_class(std::string_view op, Element low) {
  const Rule* rule = find_rule(op);
  if (const Operator* row = row_of(rule)) {
    return row->class_for(low == Element::kFloat16 ? DType::kFloat16 : DType::kBFloat16);
  }
  return rule == nullptr ? kNeutral : rule->own;
}

std::string_view default_reason(std::string_view op, Element) {
  const Rule* rule = find_rule(op);
  if (const Operator* row = row_of(rule)) return row->why;
  return rule == nullptr ? "follows its neighbours" : rule->why;
}

}  // namespace mezzo::convert
