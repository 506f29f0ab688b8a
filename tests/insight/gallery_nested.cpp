// Seeded faults inside of something: layers, functions, scripts, other derivatives.
#include <torch/script.h>

#include <limits>

#include "insight/gallery.h"
#include "mezzo/recompute.h"
#include "mezzo/reparameterization.h"

namespace mezzo::insight {

namespace {

using Variables = torch::autograd::variable_list;
using torch::autograd::AutogradContext;

/// The third power, whose forward pass overflows.
struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static Variables backward(AutogradContext* context, Variables gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

/// The square root, whose derivative is written by hand.
struct RootByHand : torch::autograd::Function<RootByHand> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    at::Tensor root = x.sqrt();
    context->save_for_backward({root});
    return root;
  }
  static Variables backward(AutogradContext* context, Variables gradients) {
    return {gradients[0] / (2 * context->get_saved_variables()[0])};
  }
};

/// Holds what is added.
struct Shift : torch::nn::Module {
  at::Tensor by = register_parameter("by", torch::zeros({8}));
};

at::Tensor gradient_of(const at::Tensor& result, const at::Tensor& of) {
  return torch::autograd::grad({result.sum()}, {of}, {}, std::nullopt, /*create_graph=*/true)[0];
}

}  // namespace

// NOLINTBEGIN(readability-function-size): tables are long.
std::vector<Fault> nested() {
  using T = at::Tensor;
  return {
      {.name = "ForwardOfAnAutogradFunction",
       .level = "O2",
       .input = 300,
       .middle = [](const T& x) { return Cube::apply(x) / 1e6; },
       .op = "mul",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "DerivativeByHandThatDividesByZero",
       .input = 0,
       .middle = [](const T& x) { return RootByHand::apply(x); },
       .op = "RootByHand",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return RootByHand::apply(x + 0.1); })},
      {.name = "DerivativeOfADerivative",
       .input = 0,
       .middle = [](const T& x) { return gradient_of(x.pow(1.5), x); },
       .op = "pow",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) { return gradient_of((x + 0.1).pow(1.5), x); })},
      {.name = "NormOfAGradientThatIsZero",
       .input = 0,
       .middle = [](const T& x) { return x + gradient_of(x.pow(2), x).pow(2).sum(1, true).sqrt(); },
       .op = "sqrt",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) {
         return x + (gradient_of(x.pow(2), x).pow(2).sum(1, true) + 1e-2).sqrt();
       })},
      {.name = "ExpInARecomputedPart",
       .level = "O2",
       .input = 12,
       .middle =
           [](const T& x) { return mezzo::recompute([](const T& y) { return y.exp() / 1e4; }, x); },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "ExpInAScript",
       .level = "O2",
       .input = 12,
       .middle = [unit = torch::jit::compile("def f(x):\n  return x.exp() / 10000.0\n")](
                     const T& x) { return unit->run_method("f", x).toTensor(); },
       .op = "exp",
       .module = kBetween,
       .cause = Cause::kOverflow,
       .scale = 1},
      {.name = "RecurrentLayerAtStepThirtySeven",
       .op = "rnn_relu",
       .module = "rnn",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             auto rnn = net.register_module(
                 "rnn", torch::nn::RNN(torch::nn::RNNOptions(8, 8).nonlinearity(torch::kReLU)));
             const torch::NoGradGuard no_grad;
             for (T& weight : rnn->parameters()) weight.zero_();
             rnn->named_parameters()["weight_ih_l0"].copy_(torch::eye(8));
             rnn->named_parameters()["weight_hh_l0"].copy_(torch::eye(8) * 1.35);
             return [rnn](const T& x) {
               const T rest = x.new_zeros({49, 3, 8});
               const T all = std::get<0>(rnn->forward(torch::cat({x.unsqueeze(0), rest})));
               return all[49];
             };
           }},
      {.name = "ParameterThatIsAddedEverywhere",
       .level = "O2",
       .op = "add",
       .module = "shift",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .scale = 16384,
       .build =
           [](SandwichImpl& net) {
             auto shift = net.register_module("shift", std::make_shared<Shift>());
             return [shift](const T& x) {
               return x + (torch::zeros({3, 100, 8}, x.options()) + shift->by).sum(1);
             };
           }},
      {.name = "TemperatureThatIsLearned",
       .level = "O2",
       .op = "exp",
       .module = "temperature",
       .cause = Cause::kOverflow,
       .scale = 1,
       .build =
           [](SandwichImpl& net) {
             net.register_parameter("temperature", torch::full({1}, 12.0));
             return [&net](const T& x) {
               return x * net.named_parameters()["temperature"].exp() / 1e6;
             };
           }},
      {.name = "WeightNormOfARowOfZeros",
       .op = "mul",
       .module = "middle",
       .cause = Cause::kGradientOverflow,
       .backward = true,
       .build =
           [](SandwichImpl& net) {
             auto middle = net.register_module("middle", torch::nn::Linear(8, 8));
             mezzo::apply_weight_norm(*middle);
             const torch::NoGradGuard no_grad;
             middle->named_parameters()["weight_v"].zero_();
             return [middle](const T& x) { return middle->forward(x); };
           }},
      {.name = "RunningVarianceOfZeroWithoutAnEpsilon",
       .op = "batch_norm",
       .module = "norm",
       .cause = Cause::kDivisionByZero,
       .in_float = true,
       .build =
           [](SandwichImpl& net) {
             auto norm = net.register_module(
                 "norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(8).eps(0)));
             norm->running_var.zero_();
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
      {.name = "MastersBeyondTheirLowCopies",
       .level = "O2",
       .cause = Cause::kExplodedWeights,
       .spoil = [](SandwichImpl& net) { net.head->weight[1][3] = 1e8; },
       .parameter = "head.weight",
       .mend = [](Fault& f) { f.spoil = {}; }},
      {.name = "EmbeddingRowThatIsNaN",
       .cause = Cause::kExplodedWeights,
       .in_float = true,
       .parameter = "rows.weight",
       .build =
           [](SandwichImpl& net) {
             auto rows = net.register_module("rows", torch::nn::Embedding(4, 8));
             const torch::NoGradGuard no_grad;
             rows->weight[2].fill_(std::numeric_limits<float>::quiet_NaN());
             return [rows](const T& x) {
               return x + rows->forward(torch::tensor({0, 2, 1}, at::kLong));
             };
           },
       .mend =
           [](Fault& f) {
             f.build = [](SandwichImpl& net) {
               auto rows = net.register_module("rows", torch::nn::Embedding(4, 8));
               return [rows](const T& x) {
                 return x + rows->forward(torch::tensor({0, 2, 1}, at::kLong));
               };
             };
           }},
      {.name = "EigenvectorsOfAMultipleOfOne",
       .middle =
           [](const T& x) {
             const T scaled = torch::eye(8) * x.to(at::kFloat).select(0, 0);
             return x + std::get<1>(torch::linalg_eigh(scaled)).sum(0);
           },
       .op = "linalg_eigh",
       .module = kBetween,
       .cause = Cause::kDivisionByZero,
       .backward = true,
       .in_float = true,
       .mend = in_between([](const T& x) {
         const T scaled =
             torch::diag(torch::arange(1, 9).to(at::kFloat)) * x.to(at::kFloat).select(0, 0);
         return x + std::get<1>(torch::linalg_eigh(scaled)).sum(0);
       })},
  };
}
// NOLINTEND(readability-function-size)

}  // namespace mezzo::insight
