// Seeded faults at the poles of functions, where derivatives have none, and of sums in 16 bits.
#include "insight/gallery.h"

namespace mezzo::insight {

// NOLINTBEGIN(readability-function-size): tables are long.
std::vector<Fault> sums() {
  using T = at::Tensor;
  return {
      {.name = "NormOfEqualValuesInALowNetwork",
       .level = "O2",
       .input = 30000,
       .middle = [](const T& x) { return x / 1e3 + x.norm(2, {1}, true) / 1e6; },
       .op = "norm",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "VectorNormOfEqualValuesInALowNetwork",
       .level = "O2",
       .input = 30000,
       .middle =
           [](const T& x) { return x / 1e3 + torch::linalg_vector_norm(x, 2, {1}, true) / 1e6; },
       .op = "linalg_vector_norm",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "ScatteredSumInALowNetwork",
       .level = "O2",
       .input = 30000,
       .middle =
           [](const T& x) {
             const T rows = torch::tensor({1, 1, 1}, at::kLong);
             return torch::zeros_like(x).index_add(0, rows, x) / 1e4;
           },
       .op = "index_add",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "SumOfProductsByIndices",
       .input = 300,
       .middle =
           [](const T& x) {
             return torch::einsum("ij,kj,kl->il", {x, x, x}) / 1e6;
           },
       .op = "einsum",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "BatchedProduct",
       .input = 300,
       .middle =
           [](const T& x) {
             const T each = x.unsqueeze(2);
             return x + torch::bmm(each, each.transpose(1, 2)).mean(2) / 1e6;
           },
       .op = "bmm",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "TransposedConvolution",
       .input = 100,
       .op = "conv_transpose1d",
       .module = "up",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             auto up = net.register_module(
                 "up", torch::nn::ConvTranspose1d(
                           torch::nn::ConvTranspose1dOptions(1, 1, 3).padding(1).bias(false)));
             const torch::NoGradGuard no_grad;
             up->weight.fill_(1000);
             return [up](const T& x) { return up->forward(x.unsqueeze(1)).squeeze(1) / 1e6; };
           }},
      {.name = "PowerOfTwoInALowNetwork",
       .level = "O3",
       .input = 17,
       .middle = [](const T& x) { return x.exp2() / 1e4; },
       .op = "exp2",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "ExpInPlaceInALowNetwork",
       .level = "O2",
       .input = 12,
       .middle = [](const T& x) { return x.clone().exp_() / 1e4; },
       .op = "exp_",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "SquareInPlace",
       .input = 300,
       .middle =
           [](const T& x) {
             const T y = x.clone();
             return y.mul_(x) / 1e4;
           },
       .op = "mul_",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "ProductBeyondTheRangeOfFloat",
       .level = "O4",
       .middle = [](const T& x) { return x * 1e30 * 1e30; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return (x * 1e30).clamp_max(1) * 1e3; })},
      {.name = "SoftplusByHand",
       .input = 100,
       .middle = [](const T& x) { return x.exp().log1p(); },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return torch::softplus(x); })},
      {.name = "RawDataThatIsLarge",
       .before = [](const T& x) { return x * 1e30 * 1e30; },
       .op = "mul",
       .module = "before stem",
       .cause = Cause::kOverflow,
       .in_float = true,
       .mend = [](Fault& f) { f.before = [](const T& x) { return x.clamp_max(1); }; }},
  };
}

std::vector<Fault> poles() {
  using T = at::Tensor;
  return {
      {.name = "LogOfRawData",
       .input = 0,
       .before = [](const T& x) { return x.log(); },
       .op = "log",
       .module = "before stem",
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .mend = [](Fault& f) { f.before = [](const T& x) { return x.clamp_min(1e-6).log(); }; }},
      {.name = "ZeroToANegativePower",
       .middle = [](const T& x) { return torch::pow(0, -x); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return torch::pow(2, -x); })},
      {.name = "DivisionByAScalarOfZero",
       .middle = [](const T& x) { return x / 0.0; },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return x / 0.5; })},
      {.name = "FusedDivisionByZero",
       .middle = [](const T& x) { return torch::addcdiv(x, x, x * 0); },
       .op = "addcdiv",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return torch::addcdiv(x, x, x * 0 + 0.5); })},
      {.name = "DivisionInPlaceByZero",
       .middle = [](const T& x) { return x.clone().div_(x * 0); },
       .op = "div_",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return x.clone().div_(x * 0 + 0.5); })},
      {.name = "AreaOfNothingOverItself",
       .input = 0,
       .middle = [](const T& x) { return (x * x) / (x * x + x - x * x); },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return (x * x) / (x * x + x - x * x + 0.1); })},
      {.name = "UnitVectorOfZerosInALowNetwork",
       .level = "O2",
       .input = 0,
       .middle =
           [](const T& x) {
             namespace F = torch::nn::functional;
             return F::normalize(x, F::NormalizeFuncOptions().dim(1).eps(1e-12));
           },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1},
      {.name = "LogOfSoftmaxOfLargeLogits",
       .middle =
           [](const T& x) {
             const T logits = x * torch::tensor({200, 0, 0, 0, 0, 0, 0, 0});
             return logits.softmax(1).log();
           },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) {
         const T logits = x * torch::tensor({200, 0, 0, 0, 0, 0, 0, 0});
         return logits.log_softmax(1);
       })},
      {.name = "EntropyByHandOfAnImpossibleEvent",
       .input = 0,
       .middle = [](const T& x) { return -x * x.log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .mend = in_between([](const T& x) { return -x * x.clamp_min(1e-6).log(); })},
      {.name = "DivergenceFromAnImpossibleEvent",
       .middle = [](const T& x) { return x * (x / (x * 0)).log(); },
       .op = "div",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return x * (x / (x * 0 + 0.1)).log(); })},
      {.name = "LogOfBaseTwoOfZero",
       .level = "O0",
       .input = 0,
       .middle = [](const T& x) { return x.log2(); },
       .op = "log2",
       .module = kBetween,
       .cause = Cause::kLogOfZero,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return x.clamp_min(1e-6).log2(); })},
      {.name = "VarianceOfNothing",
       .level = "O5",
       .middle = [](const T& x) { return x + x.slice(1, 0, 0).var(); },
       .op = "var",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return x + x.slice(1, 0, 2).var(); })},
      {.name = "InfinityMinusInfinity",
       .middle =
           [](const T& x) {
             const T end = torch::full_like(x, kInfinity);
             return x + (end - end);  // NOLINT(misc-redundant-expression)
           },
       .op = "sub",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true,
       .mend = in_between([](const T& x) {
         const T end = torch::full_like(x, 100);
         return x + (end - end);  // NOLINT(misc-redundant-expression)
       })},
      {.name = "LogSoftmaxOfARowThatIsMaskedWhole",
       .middle =
           [](const T& x) {
             return x.masked_fill(torch::ones_like(x, at::kBool), -kInfinity).log_softmax(1);
           },
       .op = "log_softmax",
       .module = kBetween,
       .cause = Cause::kInvalid,
       .in_float = true,
       .mend = in_between([](const T& x) {
         return x.masked_fill(torch::ones_like(x, at::kBool), -1e4).log_softmax(1);
       })},
  };
}

std::vector<Fault> flat_places() {
  using T = at::Tensor;
  return {
      {.name = "AngleNearTheOriginInALowNetwork",
       .level = "O2",
       .input = 1e-6,
       .middle = [](const T& x) { return torch::atan2(x, x); },
       .op = "atan2",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 1},
      {.name = "HypotenuseAtTheOrigin",
       .input = 0,
       .middle = [](const T& x) { return torch::hypot(x, x); },
       .op = "hypot",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return torch::hypot(x, x + 0.1); })},
      {.name = "DeviationByHandOfAConstantRow",
       .middle = [](const T& x) { return x * x.var(1, false, true).sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return x * (x.var(1, false, true) + 1e-2).sqrt(); })},
      {.name = "AreaCosineAtOne",
       .middle = [](const T& x) { return x.acosh(); },
       .op = "acosh",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return x.clamp_min(1.1).acosh(); })},
      {.name = "MaskBehindALogarithm",
       .input = 0,
       .middle = [](const T& x) { return torch::where(x > 0, x.log(), x); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between(
           [](const T& x) { return torch::where(x > 0, torch::where(x > 0, x, 1.0).log(), x); })},
      {.name = "MaskedMeanOfNothing",
       .op = "div",
       .module = "after head",
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .loss =
           [](const T& y) {
             const T mask = torch::zeros_like(y.detach());
             return (y * mask).sum() / mask.sum();
           },
       .mend =
           [](Fault& f) {
             f.loss = [](const T& y) {
               const T mask = torch::zeros_like(y.detach());
               return (y * mask).sum() / mask.sum().clamp_min(1);
             };
           }},
      {.name = "LogarithmOfAlmostZero",
       .level = "O0",
       .input = 1e-20,
       .middle = [](const T& x) { return (x * x).log(); },
       .op = "log",
       .module = kBetween,
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .in_float = true,
       .scale = 1,
       .mend = in_between([](const T& x) { return (x * x).clamp_min(1e-6).log(); })},
      {.name = "LayerNormOfAConstantRow",
       .level = "O2",
       .op = "layer_norm",
       .module = "norm",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .spoil = [](SandwichImpl& net) { net.head->weight[0][0] = 1; },
       .build =
           [](SandwichImpl& net) {
             auto norm = net.register_module(
                 "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8}).eps(1e-12)));
             return [norm](const T& x) { return norm->forward(x); };
           }},
      {.name = "GradientsThatAddUpInOneRow",
       .level = "O2",
       .op = "embedding",
       .module = "rows",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 16384,
       .build =
           [](SandwichImpl& net) {
             auto rows = net.register_module("rows", torch::nn::Embedding(4, 8));
             const torch::NoGradGuard no_grad;
             rows->weight.zero_();
             return [rows](const T& x) {
               return x + rows->forward(torch::zeros({3, 20}, at::kLong)).sum(1);
             };
           }},
  };
}
// NOLINTEND(readability-function-size)

}  // namespace mezzo::insight
