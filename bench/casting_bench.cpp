#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "callgrind.h"
#include "casting/weights.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

// The cost of the casting layer per operator, beside LibTorch's own autocast.
void instructions(Report& report) {
  const std::map<std::string, double> counts = counted_instructions("casting");
  const auto extra = [&](const std::string& name, const char* way) {
    return counts.at(name + way) - counts.at(name + "/off");
  };
  const std::string idle = "not listed: mul";
  report.add({.name = "operator that is not listed, scope on",
              .unit = "instructions",
              .ours = counts.at(idle + "/ours"),
              .peer = counts.at(idle + "/off"),
              .peer_name = "the same with the scope off",
              .target = 1.0});
  for (const char* name : {"mm", "bmm", "linear", "conv2d", "cat", "softmax"}) {
    report.add(
        {.name = std::string("extra of a listed operator, nothing to cast: ") + name,
         .unit = "instructions",
         .ours = extra(name, "/ours"),
         .peer = extra(name, "/native"),
         .peer_name = "native autocast's extra",
         .target = name == std::string("softmax") ? std::nullopt : std::optional<double>(1.0)});
  }
  const auto of_the_cast = [&](const char* way) {
    return counts.at(std::string("cached weight: mm") + way) -
           counts.at(std::string("low argument: mm") + way);
  };
  report.add({.name = "weight already cast, use in an operator (extra)",
              .unit = "instructions",
              .ours = of_the_cast("/ours"),
              .peer = of_the_cast("/native"),
              .peer_name = "native autocast's cached cast",
              .target = 2.0});
}

void linear_inference(Report& report, const Settings& settings) {
  const at::NoGradGuard no_grad;
  torch::nn::Linear linear(1024, 1024);
  torch::nn::Linear low(1024, 1024);
  low->to(at::kBFloat16);
  const at::Tensor x = torch::randn({4, 1024});
  const at::Tensor low_x = x.to(at::kBFloat16);
  const Policy policy = Policy::defaults(at::kBFloat16);
  const Pair pair = interleave(
      [&] {
        const amp::Autocast scope(policy);
        linear(x);
      },
      [&] { low(low_x); }, settings.repeats);
  report.add({.name = "inference of Linear(1024, 1024), batch 4, bfloat16",
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "a bfloat16 model",
              .spread = pair.spread,
              .target = 1 / 1.1});
}

void weight_casts(Report& report) {
  torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 64));
  torch::optim::SGD sgd(net->parameters(), 0.01);
  const at::Tensor x = torch::randn({8, 64});
  const auto forward = [&] {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return net->forward(x).to(at::kFloat).square().mean();
  };
  const auto casts_of = [](const std::function<void()>& iteration) {
    iteration();
    const std::int64_t before = cast_counts().weight_casts;
    for (int i = 0; i < 10; ++i) iteration();
    return static_cast<double>(cast_counts().weight_casts - before) / 10;
  };
  const double evaluation = casts_of([&] {
    const at::NoGradGuard no_grad;
    forward();
  });
  const double training = casts_of([&] {
    sgd.zero_grad();
    forward().backward();
    sgd.step();
  });
  report.add({.name = "weight casts per evaluation of 4 weights",
              .unit = "count",
              .ours = evaluation,
              .peer = 0,
              .peer_name = "the least possible",
              .target = 1.0});
  report.add({.name = "weight casts per training iteration of 4 weights, optim::SGD",
              .unit = "count",
              .ours = training,
              .peer = 4,
              .peer_name = "one per weight",
              .target = 1.0});
}

// Forward and backward of one layer at the float16 level, emulated, against the same in float.
template <typename Layer>
void emulated(Report& report, const Settings& settings, const std::string& name, Layer layer,
              const at::Tensor& input) {
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
  const at::Tensor x = input.clone().requires_grad_();
  const at::Tensor low_x = input.to(at::kHalf).requires_grad_();
  const Policy policy = Policy::defaults(at::kHalf);
  at::Tensor ones;
  const auto backward = [&](const at::Tensor& y) {
    torch::autograd::backward({y}, {torch::ones_like(y)});
    layer->zero_grad();
  };
  const Pair pair = interleave(
      [&] {
        at::Tensor y;
        {
          const amp::Autocast scope(policy);
          y = layer(low_x);
        }
        backward(y);
        // As our own step() does after an update.
        casting::refresh_casts(layer->parameters());
      },
      [&] { backward(layer(x)); }, settings.repeats);
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
  report.add({.name = "float16 emulated, forward and backward: " + name,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "float",
              .spread = pair.spread,
              .target = 1 / 1.1});
}

}  // namespace

void run_casting(Report& report, const Settings& settings) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  instructions(report);
  linear_inference(report, settings);
  weight_casts(report);
  emulated(report, settings, "linear 256x1024x1024", torch::nn::Linear(1024, 1024),
           torch::randn({256, 1024}));
  emulated(report, settings, "conv 3x3, 64 channels, 28x28, batch 32",
           torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 64, 3).padding(1)),
           torch::randn({32, 64, 28, 28}));
}

}  // namespace mezzo::bench
