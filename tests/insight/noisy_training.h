// A training with everything that a tool could disturb: random numbers, buffers, skipped steps.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/optim.h"

namespace mezzo::insight {

/// Dropout and batch norm: random numbers and buffers.
struct NoisyImpl : torch::nn::Module {
  NoisyImpl() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    second = register_module("second", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(drop(torch::relu(norm(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Noisy);

/// Where a training is.
struct NoisyStep {
  amp::Model<Noisy>& model;
  amp::Optimizer& optimizer;
  std::function<at::Tensor()> loss;
  int number = 0;
  std::optional<bool> skipped = {};  // unset: between backward pass and step
};

/// Everything that training moves, after ten steps of which some overflow. `between` is called
/// twice in each step.
inline std::vector<at::Tensor> trained_noisily(
    const std::string& level, bool fused, const std::function<void(const NoisyStep&)>& between) {
  constexpr double kTooLarge = std::numeric_limits<double>::infinity();
  torch::manual_seed(3);
  Noisy net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  if (fused) {
    inner = std::make_unique<optim::FusedAdam>(net->parameters(), optim::FusedAdamOptions(1e-2));
  } else {
    inner = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  auto [model, optimizer] = amp::initialize(net, *inner,
                                            {.opt_level = level,
                                             .loss_scale = "dynamic",
                                             .init_loss_scale = 8388608,
                                             .growth_interval = 3,
                                             .verbosity = 0,
                                             .check_finite = true});
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = torch::randn({6, 4}) * (i == 5 ? kTooLarge : 1.0);
    const auto loss = [&, &model = model] { return model(x).pow(2).sum(); };
    NoisyStep step{model, optimizer, loss, i};
    optimizer.zero_grad();
    amp::scale_loss(loss(), optimizer).backward();
    if (between) between(step);
    step.skipped = optimizer.step().skipped();
    if (between) between(step);
  }
  std::vector<at::Tensor> all{
      torch::rand({2}), torch::full({1}, optimizer.loss_scale(), at::kDouble),
      torch::full({1}, optimizer.skipped_steps()), torch::full({1}, optimizer.applied_steps())};
  for (const auto& item : amp::model_state_dict(model)) all.push_back(item.value());
  for (const at::Tensor& parameter : net->parameters()) {
    all.push_back(parameter.detach().clone());
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros({}));
  }
  return all;
}

}  // namespace mezzo::insight
