// A small training whose steps a device may decide: linear layers around a batch norm, stepped by
// FusedSGD.
#pragma once

#include <torch/torch.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/optim.h"

namespace mezzo::amp {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct NetImpl : torch::nn::Module {
  NetImpl() {
    in = register_module("in", torch::nn::Linear(12, 24));
    norm = register_module("norm", torch::nn::BatchNorm1d(24));
    out = register_module("out", torch::nn::Linear(24, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(in(x)))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

struct UndecidedTraining {
  Net net;
  optim::FusedSGD sgd;
  std::optional<std::pair<Model<Net>, Optimizer>> amp;

  UndecidedTraining(const at::Device& device, const Options& options)
      : net(made_on(device)), sgd(net->parameters(), optim::FusedSGDOptions(0.05).momentum(0.9)) {
    amp.emplace(initialize(net, sgd, options));
  }
  static Net made_on(const at::Device& device) {
    torch::manual_seed(5);
    Net net;
    net->to(device);
    return net;
  }
  Optimizer& optimizer() { return amp->second; }

  /// A step on data of its own; `factor` spoils it where it is infinite.
  StepResult step(int number, double factor = 1) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + number));
    const at::Device device = net->in->weight.device();
    const at::Tensor x = torch::randn({16, 12}).to(device);
    const at::Tensor y = torch::randn({16, 5}).to(device);
    optimizer().zero_grad();
    const at::Tensor loss = torch::mse_loss(amp->first(x), y) * factor;
    scale_loss(loss, optimizer()).backward();
    return optimizer().step();
  }
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> result;
    for (const auto& item : model_state_dict(amp->first)) {
      result.push_back(item.value().detach().cpu().to(at::kDouble).clone());
    }
    return result;
  }
};

}  // namespace mezzo::amp
