// Seeded faults whose first sign is not where they end up: in the data, in the forward pass of an
// operator whose derivative fails as well, at the network's edge.
#include <limits>

#include "insight/gallery.h"
#include "mezzo/recompute.h"

namespace mezzo::insight {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

at::Tensor targets_of(const at::Tensor& y, double bad) {
  at::Tensor labels = torch::arange(y.numel()).to(at::kFloat).reshape(y.sizes()) / 7 + 0.1;
  labels[1][0] = bad;
  return labels;
}

/// The same in float, in a low network, and as it stands.
std::vector<Fault> at_levels(std::vector<Fault> faults) {
  const std::size_t count = faults.size();
  for (const char* level : {"O0", "O2", "O4"}) {
    for (std::size_t i = 0; i < count; ++i) {
      Fault fault = faults[i];
      fault.name += level;
      fault.level = level;
      faults.push_back(std::move(fault));
    }
  }
  return faults;
}

}  // namespace

// NOLINTBEGIN(readability-function-size): tables are long.
std::vector<Fault> data_in_the_program() {
  using T = at::Tensor;
  return at_levels({
      {.name = "OnePixelThatIsNaN",
       .before =
           [](const T& x) {
             T image = x.clone();
             image[1][2] = kNan;
             return image;
           },
       .cause = Cause::kBadInput,
       .in_float = true,
       .mend = [](Fault& f) { f.before = {}; }},
      {.name = "OnePixelThatIsNaNNormalised",
       .before =
           [](const T& x) {
             T image = x.clone();
             image.index_put_({1, 2}, kNan);
             return (image - 0.5) / 0.25;
           },
       .cause = Cause::kBadInput,
       .in_float = true,
       .mend = [](Fault& f) { f.before = {}; }},
      {.name = "OnePixelThatIsInfinite",
       .before =
           [](const T& x) {
             T image = x.clone();
             image[1][2] = kInfinity;
             return image;
           },
       .cause = Cause::kBadInput,
       .in_float = true,
       .mend = [](Fault& f) { f.before = {}; }},
      {.name = "AMixedBatchWithAnInfiniteLabel",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             const T labels = targets_of(y, kInfinity);
             return torch::mse_loss(y, labels * 0.7 + labels.flip(0) * 0.3);
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "AMixedBatchWithAnInfiniteLabelOutside",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             static const T labels = targets_of(torch::ones({3, 2}), kInfinity);
             return torch::mse_loss(y, labels * 0.7 + labels.flip(0) * 0.3);
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "ASmoothedLabelThatIsNaN",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             const T labels = targets_of(y, kNan);
             return -((labels * 0.9 + 0.05) * y.log_softmax(1)).sum();
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "ALabelOfBceThatIsInfinite",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             return torch::binary_cross_entropy_with_logits(y, targets_of(y, kInfinity));
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "AClassWeightThatIsNaN",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             const T weights = torch::tensor({1.0F, kNan});
             namespace F = torch::nn::functional;
             return F::cross_entropy(y, torch::tensor({0, 1, 0}, at::kLong),
                                     F::CrossEntropyFuncOptions().weight(weights));
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "ATargetThatWasFilledWithNaNWhole",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss =
           [](const T& y) {
             return torch::smooth_l1_loss(y, torch::full({3, 2}, kNan));
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
      {.name = "LabelsThatAreInfiniteAll",
       .cause = Cause::kBadInput,
       .in_float = true,
       .loss = [](const T& y) { return torch::mse_loss(y, torch::full_like(y, kInfinity)); },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return torch::mse_loss(y, targets_of(y, 1)); };
           }},
  });
}

std::vector<Fault> forward_first() {
  using T = at::Tensor;
  return at_levels({
      {.name = "LossOverAVarianceThatIsZero",
       .op = "div",
       .module = "after head",
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .loss = [](const T& y) { return ((y - 3).pow(2) / torch::relu(-y)).mean(); },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return ((y - 3).pow(2) / (torch::relu(-y) + 1)).mean(); };
           }},
      {.name = "DiceOfEmptyMasks",
       .input = 0,
       .op = "div",
       .module = "after head",
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .loss =
           [](const T& y) {
             const T mask = torch::zeros_like(y.detach());
             const T p = y;
             return 1 - 2 * (p * mask).sum() / (p.sum() + mask.sum());
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) {
               const T mask = torch::zeros_like(y.detach());
               const T p = y;
               return 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1);
             };
           }},
      {.name = "LogOfZeroInOneOfTwoLosses",
       .input = 0,
       .op = "log",
       .module = "after head",
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .loss = [](const T& y) { return y.sum() + y.log().mean(); },
       .mend =
           [](Fault& f) { f.loss = [](const T& y) { return y.sum() + (y + 1).log().mean(); }; }},
      {.name = "DivisionByZeroInARecomputedPart",
       .middle =
           [](const T& x) {
             return mezzo::recompute([](const T& y) { return (y - 3).pow(2) / torch::relu(-y); },
                                     x);
           },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return (x - 3).pow(2) / (torch::relu(-x) + 1); })},
      {.name = "LogarithmOfZeroInAnAccumulatedMicroBatch",
       .input = 0,
       .op = "log",
       .module = "after head",
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .loss = [](const T& y) { return y.log().mean(); },
       .micro_batches = {1, 2},
       .mend = [](Fault& f) { f.loss = [](const T& y) { return (y + 1).log().mean(); }; }},
      {.name = "InverseRootOfAVarianceThatIsZeroInTheLoss",
       .op = "rsqrt",
       .module = "after head",
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .loss = [](const T& y) { return (y - 3).sum() * y.var().rsqrt(); },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) { return (y - 3).sum() * (y.var() + 1).rsqrt(); };
           }},
  });
}

std::vector<Fault> at_the_edge() {
  using T = at::Tensor;
  return {
      {.name = "ScaleThatOverflowsAtTheCastOfTheOutput",
       .op = "to",
       .module = "after head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1048576,
       .loss = [](const T& y) { return y.to(at::kFloat).sum(); }},
      {.name = "ScaleThatOverflowsAtTheCastOfTheOutputO2",
       .level = "O2",
       .op = "to",
       .module = "after head",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1048576},
  };
}

std::vector<Fault> weights_that_are_large() {
  using T = at::Tensor;
  return {
      {.name = "WeightsOfTwelveThousand",
       .input = 6,
       .op = "addmm",
       .module = "stem",
       .cause = Cause::kOverflow,
       .scale = 1,
       .spoil = [](SandwichImpl& net) { net.stem->weight.fill_(12000); }},
      {.name = "ABiasOfFortyThousandOnScores",
       .level = "O2",
       .op = "add",
       .module = "bias",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             net.register_parameter("bias", torch::full({8}, 40000.0));
             return
                 [&net](const T& x) { return (x * 30000 + net.named_parameters()["bias"]) / 1e4; };
           }},
      {.name = "WeightsThatGrewToThirtyThousand",
       .op = "addmm",
       .module = "head",
       .cause = Cause::kExplodedWeights,
       .scale = 1,
       .parameter = "head.bias",
       .learning_rate = 1e4,
       .good_steps = 1},
      {.name = "AFrozenTeacher",
       .input = 6,
       .op = "matmul",
       .module = "teacher",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             auto teacher = net.register_module(
                 "teacher", torch::nn::Linear(torch::nn::LinearOptions(8, 8).bias(false)));
             const torch::NoGradGuard no_grad;
             teacher->weight.fill_(12000).requires_grad_(false);
             return [teacher](const T& x) { return x - teacher->forward(x) / 1e5; };
           }},
  };
}

// NOLINTEND(readability-function-size)

}  // namespace mezzo::insight
