// Every fault of the gallery is explained: operator, module, kind, and an advice that helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "insight/gallery.h"

namespace mezzo::insight {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::string kBetween = "between stem and head";

/// Passes values on and multiplies gradients by a million.
struct Amplify : torch::autograd::Function<Amplify> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 1e6};
  }
};

// NOLINTBEGIN(readability-function-size): tables are long.
std::vector<Fault> overflows() {
  using T = at::Tensor;
  return {
      {.name = "SquareOfAnActivation",
       .input = 300,
       .middle = [](const T& x) { return x * x / 1000.0; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 16},
      {.name = "SquareThatALowProductReads",
       .input = 300,
       .middle = [](const T& x) { return x * x; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "ExpWhoseResultALowProductReads",
       .input = 12,
       .middle = [](const T& x) { return x.exp(); },
       .op = "addmm",
       .module = "head",
       .cause = Cause::kOverflow},
      {.name = "ExpInALowNetwork",
       .level = "O2",
       .input = 12,
       .middle = [](const T& x) { return x.exp() / 1e4; },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "PowInALowNetwork",
       .level = "O2",
       .input = 300,
       .middle = [](const T& x) { return x.pow(2) / 1e4; },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "SumInALowNetwork",
       .level = "O2",
       .input = 10000,
       .middle = [](const T& x) { return x / 100 + x.sum(1, true) / 1e4; },
       .op = "sum",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "VarianceInALowNetwork",
       .level = "O3",
       .input = 1,
       .middle =
           [](const T& x) {
             const T wide = x * torch::tensor({600, -600, 600, -600, 600, -600, 600, -600});
             return wide * wide.var(1, true, true) / 1e6;
           },
       .op = "var",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "MatmulAccumulation",
       .input = 30000,
       .middle = [](const T& x) { return x / 1e5; },
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kOverflow,
       .spoil = [](SandwichImpl& net) { net.stem->weight.fill_(1); }},
      {.name = "AttentionScores",
       .input = 300,
       .middle = [](const T& x) { return torch::matmul(torch::matmul(x, x.t()) / 1e4, x) / 1e4; },
       .op = "matmul",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "LogSumExpByHandInALowNetwork",
       .level = "O2",
       .input = 12,
       .middle = [](const T& x) { return x - x.exp().sum(1, true).log(); },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "LossBehindTheModel",
       .level = "O2",
       .input = 1,
       .op = "exp",
       .module = "after head",
       .cause = Cause::kOverflow,
       .in_float = true,
       .loss = [](const T& y) { return (y * 100).exp().sum(); }},
  };
}

std::vector<Fault> invalid_arguments() {
  using T = at::Tensor;
  return {
      {.name = "InfinityTimesZero",
       .input = 0,
       .middle = [](const T& x) { return x * torch::full_like(x, kInfinity); },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "RowThatIsMaskedWhole",
       .middle =
           [](const T& x) {
             return x.masked_fill(torch::ones_like(x, at::kBool), -kInfinity).softmax(1);
           },
       .op = "softmax",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "AdditiveMaskOfAWholeRow",
       .middle = [mask =
                      torch::full({8}, -kInfinity)](const T& x) { return (x + mask).softmax(1); },
       .op = "softmax",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "RootOfANegativeNumber",
       .middle = [](const T& x) { return (-x).sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "LogOfANegativeNumber",
       .middle = [](const T& x) { return (-x).log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "ArcusCosineOfTwo",
       .input = 2,
       .middle = [](const T& x) { return x.acos(); },
       .op = "acos",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true},
      {.name = "LogOfZero",
       .input = 0,
       .middle = [](const T& x) { return x.log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true},
      {.name = "LogOfOnePlusMinusOne",
       .middle = [](const T& x) { return (-x).log1p(); },
       .op = "log1p",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true},
      {.name = "LogOfWhatUnderflowed",
       .input = 1e-4,
       .middle = [](const T& x) { return (x * x).log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero},
      {.name = "DivisionByZero",
       .middle = [](const T& x) { return x / (x - x); },  // NOLINT(misc-redundant-expression)
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "DeviationOfAConstantRow",
       .middle = [](const T& x) { return (x - x.mean(1, true)) / x.std(1, true, true); },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "CosineOfZerosByHand",
       .input = 0,
       .middle = [](const T& x) { return x * (x * x).sum(1, true) / x.norm(2, {1}, true).pow(2); },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "ReciprocalOfZero",
       .input = 0,
       .middle = [](const T& x) { return x.reciprocal(); },
       .op = "reciprocal",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "MeanOfNothing",
       .middle = [](const T& x) { return x + x.slice(1, 0, 0).mean(); },
       .op = "mean",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "DeviationOfOneValue",
       .middle = [](const T& x) { return x + x.slice(1, 0, 1).std(1, true, true); },
       .op = "std",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "DifferenceThatBfloat16Rounds",
       .level = "O4",
       .input = 0.9999,
       .middle = [](const T& x) { return x / (1 - x) / 1e4; },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .scale = 1},
  };
}

std::vector<Fault> derivatives() {
  using T = at::Tensor;
  return {
      {.name = "RootAtZero",
       .input = 0,
       .middle = [](const T& x) { return x.sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true},
      {.name = "NormAtZeroByHand",
       .input = 0,
       .middle = [](const T& x) { return x + (x * x).sum(1, true).sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true},
      {.name = "ArcusCosineAtOne",
       .input = 1,
       .middle = [](const T& x) { return x.acos(); },
       .op = "acos",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true},
      {.name = "PowerBelowOneAtZero",
       .input = 0,
       .middle = [](const T& x) { return x.pow(0.5); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true},
      {.name = "MaskBehindADivision",
       .input = 0,
       .middle = [](const T& x) { return torch::where(x > 0, x.reciprocal(), x); },
       .op = "reciprocal",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true},
      {.name = "ScaleTooHigh",
       .op = "addmm",
       .module = "head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1048576},
      {.name = "ScaleTooHighInALowNetwork",
       .level = "O2",
       .op = "addmm",
       .module = "head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1048576},
      {.name = "GradientThatGrowsInBetween",
       .input = 1e-4,
       .middle = [](const T& x) { return x * 10000.0; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true},
      {.name = "GradientThroughFiftyLayers",
       .input = 1e-5,
       .middle =
           [](const T& x) {
             T y = x;
             for (int i = 0; i < 50; ++i) y = torch::relu(y * 1.3);
             return y;
           },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true},
      {.name = "CustomAutogradFunction",
       .middle = [](const T& x) { return Amplify::apply(x); },
       .op = "Amplify",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true},
  };
}

// NOLINTEND(readability-function-size)

std::vector<Fault> data_and_weights() {
  using T = at::Tensor;
  return {
      {.name = "OneSampleIsNaN",
       .cause = Cause::kBadInput,
       .in_float = true,
       .spoil_data = [](T& x) { x[1][2] = std::numeric_limits<float>::quiet_NaN(); }},
      {.name = "InfiniteLabel",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             T labels = torch::ones_like(y.detach());
             labels.accessor<float, 2>()[0][0] = std::numeric_limits<float>::infinity();
             return torch::mse_loss(y, labels);
           }},
      {.name = "WeightsThatAreInfinite",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .spoil = [](SandwichImpl& net) { net.head->weight[0][0] = kInfinity; },
       .parameter = "head.weight"},
      {.name = "WeightsThatExploded",
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kExplodedWeights,
       .spoil = [](SandwichImpl& net) { net.stem->weight.fill_(1e8); },
       .parameter = "stem.weight"},
      {.name = "WeightsThatExplodedBeyondFloat",
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .spoil =
           [](SandwichImpl& net) {
             net.stem->weight.fill_(1e30);
             net.head->weight.fill_(1e30);
           },
       .parameter = "stem.weight"},
  };
}

std::vector<Fault> gallery() {
  std::vector<Fault> all;
  for (const auto& part : {overflows(), invalid_arguments(), derivatives(), data_and_weights()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

class Gallery : public testing::TestWithParam<Fault> {};

TEST_P(Gallery, IsExplainedAndMended) {
  const Fault& fault = GetParam();
  Scene scene(fault);
  ASSERT_TRUE(scene.step().skipped()) << "the fault itself is missing";
  const Explanation why = scene.explain();
  SCOPED_TRACE(why.to_text());
  EXPECT_TRUE(why.reproduced);
  EXPECT_EQ(to_string(why.cause), to_string(fault.cause));
  ASSERT_EQ(why.first.has_value(), !fault.op.empty());
  if (why.first) {
    EXPECT_EQ(why.first->name, fault.op);
    EXPECT_EQ(why.first->module, fault.module);
    EXPECT_EQ(why.first->backward, fault.backward);
  }
  if (!fault.parameter.empty()) {
    EXPECT_EQ(why.parameter, fault.parameter);
  }
  EXPECT_EQ(why.fails_in_float, fault.in_float);
  EXPECT_LE(why.evaluations, 12);
  ASSERT_FALSE(why.advice.empty());
  for (const Advice& advice : why.advice) {
    const bool in_code = !advice.policy && !advice.loss_scale && advice.keep_float.empty();
    EXPECT_TRUE(in_code || advice.tried) << advice.text;
    EXPECT_FALSE(fault.in_float && advice.tried) << advice.text;
    if (in_code) continue;
    Scene mended(fault, advice);
    EXPECT_TRUE(mended.step().applied()) << advice.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Gallery, testing::ValuesIn(gallery()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace mezzo::insight
