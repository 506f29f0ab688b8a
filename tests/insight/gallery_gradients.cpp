// Seeded faults of derivatives, of data and of weights.
#include <limits>

#include "insight/gallery.h"

namespace mezzo::insight {

namespace {

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

}  // namespace

// NOLINTBEGIN(readability-function-size): tables are long.
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
       .in_float = true,
       .mend = in_between([](const T& x) { return (x + 1e-3).sqrt(); })},
      {.name = "NormAtZeroByHand",
       .input = 0,
       .middle = [](const T& x) { return x + (x * x).sum(1, true).sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return x + ((x * x).sum(1, true) + 1e-3).sqrt(); })},
      {.name = "ArcusCosineAtOne",
       .input = 1,
       .middle = [](const T& x) { return x.acos(); },
       .op = "acos",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return x.clamp(-0.99, 0.99).acos(); })},
      {.name = "PowerBelowOneAtZero",
       .input = 0,
       .middle = [](const T& x) { return x.pow(0.5); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return (x + 1e-3).pow(0.5); })},
      {.name = "MaskBehindADivision",
       .input = 0,
       .middle = [](const T& x) { return torch::where(x > 0, x.reciprocal(), x); },
       .op = "reciprocal",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) {
         return torch::where(x > 0, torch::where(x > 0, x, 1.0).reciprocal(), x);
       })},
      {.name = "ScaleTooHigh",
       .op = "to",
       .module = "after head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1048576},
      {.name = "ScaleTooHighInALowNetwork",
       .level = "O2",
       .op = "to",
       .module = "after head",
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

std::vector<Fault> data_and_weights() {
  using T = at::Tensor;
  return {
      {.name = "OneSampleIsNaN",
       .cause = Cause::kBadInput,
       .in_float = true,
       .spoil_data = [](T& x) { x[1][2] = std::numeric_limits<float>::quiet_NaN(); },
       .mend = [](Fault& f) { f.spoil_data = {}; }},
      {.name = "InfiniteLabel",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             T labels = torch::ones_like(y.detach());
             labels.accessor<float, 2>()[0][0] = std::numeric_limits<float>::infinity();
             return torch::mse_loss(y, labels);
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, torch::ones_like(y)); };
           }},
      {.name = "WeightsThatAreInfinite",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .spoil = [](SandwichImpl& net) { net.head->weight[0][0] = kInfinity; },
       .parameter = "head.weight",
       .mend = [](Fault& f) { f.spoil = {}; }},
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
       .parameter = "stem.weight",
       .mend = [](Fault& f) { f.spoil = {}; }},
  };
}

// NOLINTEND(readability-function-size)

}  // namespace mezzo::insight
