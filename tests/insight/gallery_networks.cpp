// Seeded faults of layers, of rounding, and of what a loop does before the step that fails.
#include <limits>

#include "insight/gallery.h"
#include "mezzo/nn.h"

namespace mezzo::insight {

// NOLINTBEGIN(readability-function-size): tables are long.
std::vector<Fault> layers() {
  using T = at::Tensor;
  return {
      {.name = "SoftmaxByHandOfLargeLogits",
       .input = 100,
       .middle = [](const T& x) { return x.exp() / x.exp().sum(1, true); },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .in_float = true,
       .mend = in_between([](const T& x) {
         const T y = (x - x.amax(1, true)).exp();
         return y / y.sum(1, true);
       })},
      {.name = "SoftmaxAtALowTemperature",
       .input = 100,
       .middle = [](const T& x) { return (x / 0.001).softmax(1); },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "MaskOfMinusABillionThatWasCast",
       .level = "O2",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .parameter = "mask",
       .build =
           [](SandwichImpl& net) {
             net.register_buffer("mask", torch::full({8}, -1e9));
             return [&net](const T& x) { return (x + net.named_buffers()["mask"]).softmax(1); };
           },
       .mend =
           [](Fault& f) {
             f.build = [](SandwichImpl& net) {
               net.register_buffer("mask", torch::full({8}, -1e4));
               return [&net](const T& x) { return (x + net.named_buffers()["mask"]).softmax(1); };
             };
           }},
      {.name = "CumulativeSumInALowNetwork",
       .level = "O2",
       .input = 10000,
       .middle = [](const T& x) { return x.cumsum(1) / 1e4; },
       .op = "cumsum",
       .module = kBetween,
       .cause = Cause::kOverflow},
      {.name = "ProductOfManyInALowNetwork",
       .level = "O2",
       .input = 5,
       .middle = [](const T& x) { return x * x.prod(1, true) / 1e6; },
       .op = "prod",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "LossWhoseGradientAHalfNetworkCannotHold",
       .level = "O3",
       .input = 300,
       .op = "addmm",
       .module = "head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1,
       .loss = [](const T& y) { return y.pow(2).mean(); }},
      {.name = "ConvolutionThatSumsMuch",
       .input = 100,
       .op = "conv1d",
       .module = "conv",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             auto conv = net.register_module(
                 "conv",
                 torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 1, 3).padding(1).bias(false)));
             const torch::NoGradGuard no_grad;
             conv->weight.fill_(1000);
             return [conv](const T& x) { return conv->forward(x.unsqueeze(1)).squeeze(1) / 1e6; };
           }},
      {.name = "RecurrenceAtStepThirtySeven",
       .op = "addmm",
       .module = "cell",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             auto cell = net.register_module("cell", torch::nn::Linear(8, 8));
             const torch::NoGradGuard no_grad;
             cell->weight.copy_(torch::eye(8) * 1.35);  // 1.35^36 = 49238, 1.35^37 = 66472
             cell->bias.zero_();
             return [cell](const T& x) {
               T state = x;
               for (int i = 0; i < 50; ++i) state = cell->forward(state);
               return state;
             };
           }},
      {.name = "FusedNormOfARowOfZeros",
       .level = "O2",
       .input = 0,
       .op = "NormFunction",
       .module = "norm",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .build =
           [](SandwichImpl& net) {
             auto norm = net.register_module("norm", nn::FusedRMSNorm(nn::NormOptions{{8}}));
             return [norm](const T& x) { return norm->forward(x); };
           }},
      {.name = "RunningStatisticsThatAreNaN",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .parameter = "norm.running_mean",
       .build =
           [](SandwichImpl& net) {
             auto norm = net.register_module("norm", torch::nn::BatchNorm1d(8));
             norm->running_mean[3] = std::numeric_limits<float>::quiet_NaN();
             norm->eval();
             return [norm](const T& x) { return norm->forward(x); };
           },
       .mend =
           [](Fault& f) {
             f.build = [](SandwichImpl& net) {
               auto norm = net.register_module("norm", torch::nn::BatchNorm1d(8));
               norm->eval();
               return [norm](const T& x) { return norm->forward(x); };
             };
           }},
      {.name = "EmbeddingRowThatExploded",
       .op = "addmm",
       .module = "head",
       .cause = Cause::kExplodedWeights,
       .parameter = "rows.weight",
       .build =
           [](SandwichImpl& net) {
             auto rows = net.register_module("rows", torch::nn::Embedding(4, 8));
             const torch::NoGradGuard no_grad;
             rows->weight.fill_(1);
             rows->weight[2].fill_(1e30);
             return [rows](const T& x) {
               return x + rows->forward(torch::tensor({0, 2, 1}, at::kLong));
             };
           }},
      {.name = "GatherOfABadRow",
       .cause = Cause::kBadInput,
       .in_float = true,
       .build =
           [](SandwichImpl&) {
             T features = torch::ones({5, 8});
             features[3][1] = std::numeric_limits<float>::infinity();
             return [features](const T& x) {
               return x + features.index_select(0, torch::tensor({0, 3, 1}, at::kLong));
             };
           },
       .mend =
           [](Fault& f) {
             f.build = {};
             f.middle = [](const T& x) { return x + torch::ones({3, 8}); };
           }},
  };
}

std::vector<Fault> rounding() {
  using T = at::Tensor;
  return {
      {.name = "XLogYOfZero",
       .middle = [](const T& x) { return torch::xlogy(x, x * 0); },
       .op = "xlogy",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return torch::xlogy(x, (x * 0).clamp_min(1e-6)); })},
      {.name = "LogitOfOne",
       .middle = [](const T& x) { return x.logit(); },
       .op = "logit",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return x.clamp(1e-3, 1 - 1e-3).logit(); })},
      {.name = "RemainderOfZero",
       .middle = [](const T& x) { return x * x.fmod(x * 0); },
       .op = "fmod",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return x * x.fmod(x * 0 + 0.1); })},
      {.name = "InverseRootOfZero",
       .input = 0,
       .middle = [](const T& x) { return x.rsqrt(); },
       .op = "rsqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return (x + 0.1).rsqrt(); })},
      {.name = "NegativePowerOfZero",
       .input = 0,
       .middle = [](const T& x) { return x.pow(-1); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return (x + 0.5).pow(-1); })},
      {.name = "PowerOfANegativeNumber",
       .middle = [](const T& x) { return (-x).pow(0.5); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true,
       .mend = in_between([](const T& x) { return (-x).clamp_min(1e-3).pow(0.5); })},
      {.name = "EpsilonBelowHalf",
       .level = "O2",
       .middle =
           [](const T& x) {
             const T away = x - x.mean(1, true);
             return away /
                    (away.pow(2).mean(1, true) + torch::full({1}, 1e-8).to(x.dtype())).sqrt();
           },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .scale = 1},
      {.name = "ProbabilityThatRoundsToOne",
       .input = 12,
       .middle = [](const T& x) { return (1 - x.sigmoid()).log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero},
      {.name = "LogOfADifferenceThatBfloat16Rounds",
       .level = "O5",
       .input = 0.999,
       .middle = [](const T& x) { return (1 - x).log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .scale = 1},
      {.name = "DerivativeOfAReciprocal",
       .level = "O2",
       .input = 1e-3,
       .middle = [](const T& x) { return x.reciprocal(); },
       .op = "reciprocal",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 16},
  };
}

std::vector<Fault> loops() {
  using T = at::Tensor;
  return {
      {.name = "TheFirstLayerAlone",
       .input = 1000,
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .spoil = [](SandwichImpl& net) { net.stem->weight.fill_(0.0025); }},
      {.name = "AfterABadOptimizerStep",
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kExplodedWeights,
       .parameter = "stem.bias",
       .learning_rate = 1e8,
       .good_steps = 1},
      {.name = "TheThirdMicroBatch",
       .input = 300,
       .middle = [](const T& x) { return x * x / 1000.0; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 16,
       .micro_batches = {1, 2}},
  };
}
// NOLINTEND(readability-function-size)

}  // namespace mezzo::insight
