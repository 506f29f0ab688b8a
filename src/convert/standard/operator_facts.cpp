#include "convert/standard/operator_facts.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "convert/onnx/concat.h"
#include "operators/operators.h"

namespace mezzo::convert {
namespace {

using enum Kind;
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
constexpr std::string_view kPlaces = "coordinates need more digits than 16 bits have";
constexpr std::string_view kAngles = "angles need more digits than 16 bits have";
constexpr std::string_view kFollows = "follows its neighbours";

// Class and reason stand in the operator table.
constexpr OperatorFacts from(std::string_view op, std::string_view aten, Kind kind) {
  return {.op = op, .aten = aten, .kind = kind};
}

constexpr OperatorFacts own(std::string_view op, CastClass cast, Kind kind, std::string_view why) {
  return {.op = op, .own = cast, .own_reason = why, .kind = kind};
}

constexpr OperatorFacts moves(std::string_view op) {
  return own(op, kNeutral, kMoves, kMove);
}

constexpr OperatorFacts neutral(std::string_view op, Kind kind) {
  return own(op, kNeutral, kind, kFollows);
}

// Marks inputs that are compared.
constexpr OperatorFacts deciding(OperatorFacts facts, std::initializer_list<int> inputs) {
  for (const int input : inputs)
    facts.deciding =
        static_cast<std::uint8_t>(facts.deciding | (1U << static_cast<unsigned>(input)));
  return facts;
}

// Marks inputs that say where something is.
constexpr OperatorFacts placing(OperatorFacts facts, std::initializer_list<int> inputs) {
  facts = deciding(facts, inputs);
  facts.places = facts.deciding;
  return facts;
}

// Sorted by name.
constexpr OperatorFacts kFacts[] = {
    moves("Abs"),
    from("Acos", "acos", kElementwise),
    own("Acosh", kFloat, kElementwise, kSteep),
    from("Add", "add.Tensor", kElementwise),
    placing(own("AffineGrid", kFloat, kOther, kPlaces), {0}),
    neutral("And", kElementwise),
    deciding(own("ArgMax", kWidest, kOther, kChoice), {0}),
    deciding(own("ArgMin", kWidest, kOther, kChoice), {0}),
    from("Asin", "asin", kElementwise),
    own("Asinh", kFloat, kElementwise, kSteep),
    neutral("Atan", kElementwise),
    own("Atanh", kFloat, kElementwise, kSteep),
    from("Attention", "scaled_dot_product_attention", kProduct),
    neutral("AveragePool", kSums),
    neutral("BitShift", kElementwise),
    neutral("Cast", kElementwise),
    neutral("Ceil", kElementwise),
    own("Celu", kFloat, kElementwise, kSteep),
    moves("Clip"),
    deciding(neutral("Compress", kOther), {1}),
    from("Concat", "cat", kMoves),
    from("Conv", "convolution", kProduct),
    from("ConvTranspose", "convolution", kProduct),
    own("Cos", kFloat, kElementwise, kAngles),
    from("Cosh", "cosh", kElementwise),
    from("CumProd", "cumprod", kSums),
    from("CumSum", "cumsum", kSums),
    own("DFT", kFloat, kOther, kReduction),
    placing(own("DeformConv", kLow, kProduct, kMatrix), {2}),
    moves("DepthToSpace"),
    own("Det", kFloat, kOther, kSteep),
    from("Div", "div.Tensor", kElementwise),
    neutral("Dropout", kElementwise),
    from("Einsum", "einsum", kProduct),
    from("Elu", "elu", kElementwise),
    own("Equal", kWidest, kElementwise, kChoice),
    neutral("Erf", kElementwise),
    from("Exp", "exp", kElementwise),
    moves("Expand"),
    moves("Flatten"),
    neutral("Floor", kElementwise),
    from("GRU", "gru.input", kProduct),
    moves("Gather"),
    moves("GatherElements"),
    moves("GatherND"),
    from("Gelu", "gelu", kElementwise),
    from("Gemm", "addmm", kProduct),
    neutral("GlobalAveragePool", kSums),
    neutral("GlobalLpPool", kSums),
    moves("GlobalMaxPool"),
    own("Greater", kWidest, kElementwise, kChoice),
    own("GreaterOrEqual", kWidest, kElementwise, kChoice),
    placing(from("GridSample", "grid_sampler", kOther), {1}),
    from("GroupNormalization", "group_norm", kOther),
    neutral("HardSigmoid", kElementwise),
    neutral("HardSwish", kElementwise),
    deciding(neutral("Hardmax", kOther), {0}),
    moves("Identity"),
    from("InstanceNormalization", "instance_norm", kOther),
    neutral("IsInf", kElementwise),
    neutral("IsNaN", kElementwise),
    own("LRN", kFloat, kOther, kNorm),
    from("LSTM", "lstm.input", kProduct),
    from("LayerNormalization", "layer_norm", kOther),
    neutral("LeakyRelu", kElementwise),
    own("Less", kWidest, kElementwise, kChoice),
    own("LessOrEqual", kWidest, kElementwise, kChoice),
    from("Log", "log", kElementwise),
    from("LogSoftmax", "log_softmax.int", kSums),
    from("LpNormalization", "norm.Scalar", kOther),
    own("LpPool", kFloat, kSums, kNorm),
    from("MatMul", "matmul", kProduct),
    own("Max", kWidest, kMoves, kAgree),
    moves("MaxPool"),
    placing(own("MaxRoiPool", kFloat, kOther, kPlaces), {1}),
    own("Mean", kWidest, kElementwise, kAgree),
    own("MeanVarianceNormalization", kFloat, kOther, kNorm),
    own("Min", kWidest, kMoves, kAgree),
    neutral("Mish", kElementwise),
    own("Mod", kWidest, kElementwise, kAgree),
    from("Mul", "mul.Tensor", kElementwise),
    moves("Neg"),
    from("NegativeLogLikelihoodLoss", "nll_loss", kOther),
    deciding(neutral("NonMaxSuppression", kOther), {0, 1}),
    deciding(neutral("NonZero", kOther), {0}),
    neutral("Not", kElementwise),
    neutral("Or", kElementwise),
    from("PRelu", "prelu", kElementwise),
    moves("Pad"),
    from("Pow", "pow.Tensor_Tensor", kElementwise),
    from("RMSNormalization", "rms_norm", kOther),
    from("RNN", "rnn_tanh.input", kProduct),
    from("Reciprocal", "reciprocal", kElementwise),
    own("ReduceL1", kFloat, kSums, kReduction),
    own("ReduceL2", kFloat, kSums, kReduction),
    own("ReduceLogSum", kFloat, kSums, kReduction),
    own("ReduceLogSumExp", kFloat, kSums, kReduction),
    moves("ReduceMax"),
    from("ReduceMean", "mean.dim", kSums),
    moves("ReduceMin"),
    from("ReduceProd", "prod", kSums),
    from("ReduceSum", "sum.dim_IntList", kSums),
    own("ReduceSumSquare", kFloat, kSums, kReduction),
    moves("Relu"),
    moves("Reshape"),
    placing(neutral("Resize", kSums), {1, 2}),
    moves("ReverseSequence"),
    placing(own("RoiAlign", kFloat, kOther, kPlaces), {1}),
    neutral("Round", kElementwise),
    own("STFT", kFloat, kOther, kReduction),
    own("Selu", kFloat, kElementwise, kSteep),
    neutral("Shrink", kElementwise),
    neutral("Sigmoid", kElementwise),
    moves("Sign"),
    own("Sin", kFloat, kElementwise, kAngles),
    from("Sinh", "sinh", kElementwise),
    moves("Slice"),
    from("Softmax", "softmax.int", kSums),
    from("SoftmaxCrossEntropyLoss", "cross_entropy_loss", kOther),
    from("Softplus", "softplus", kElementwise),
    neutral("Softsign", kElementwise),
    moves("SpaceToDepth"),
    moves("Split"),
    neutral("Sqrt", kElementwise),
    moves("Squeeze"),
    from("Sub", "sub.Tensor", kElementwise),
    own("Sum", kWidest, kElementwise, kAgree),
    neutral("Swish", kElementwise),
    from("Tan", "tan", kElementwise),
    neutral("Tanh", kElementwise),
    neutral("ThresholdedRelu", kElementwise),
    moves("Tile"),
    deciding(own("TopK", kWidest, kOther, kChoice), {0}),
    moves("Transpose"),
    moves("Trilu"),
    deciding(neutral("Unique", kOther), {0}),
    moves("Unsqueeze"),
    placing(neutral("Upsample", kSums), {1}),
    from("Where", "where.self", kMoves),
    neutral("Xor", kElementwise),
};
static_assert(std::ranges::is_sorted(kFacts, {}, &OperatorFacts::op),
              "bisected: keep sorted by op");

const Operator* row_of(const OperatorFacts* facts) {
  if (facts == nullptr || facts->aten.empty()) return nullptr;
  const std::optional<std::size_t> row = index_of(facts->aten);
  return row ? &operators()[*row] : nullptr;
}

DType dtype_of(Element low) {
  return low == Element::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

}  // namespace

std::span<const OperatorFacts> operator_facts() {
  return kFacts;
}

const OperatorFacts* find_facts(std::string_view op) {
  const OperatorFacts* found = std::ranges::lower_bound(kFacts, op, {}, &OperatorFacts::op);
  return found == std::end(kFacts) || found->op != op ? nullptr : found;
}

Kind kind_of(std::string_view op) {
  const OperatorFacts* facts = find_facts(op);
  return facts == nullptr ? kOther : facts->kind;
}

bool adds_up(std::string_view op) {
  return kind_of(op) == kSums && op != "Softmax" && op != "LogSoftmax";
}

bool hands_on_all(std::string_view op) {
  return op == "Concat" || op == "Max" || op == "Min" || op == "Where";
}

bool is_between(std::string_view op) {
  const Kind kind = kind_of(op);
  return kind == kMoves || kind == kElementwise || kind == kSums;
}

CastClass default_class(std::string_view op, Element low) {
  const OperatorFacts* facts = find_facts(op);
  if (const Operator* row = row_of(facts)) return row->class_for(dtype_of(low));
  return facts == nullptr ? kNeutral : facts->own;
}

std::string default_reason(std::string_view op, Element low) {
  const OperatorFacts* facts = find_facts(op);
  const Operator* row = row_of(facts);
  if (row == nullptr) return std::string(facts == nullptr ? kFollows : facts->own_reason);
  // A reason for one low type is none for the other.
  const bool is_of_other = !row->same_for_all() && row->class_for(dtype_of(low)) == kNeutral;
  if (is_of_other) return concat({kFollows, " in ", name_of(low), ": ", row->why});
  return std::string(row->why);
}

}  // namespace mezzo::convert
