// The common part of this walk-through's steps: a network, and points in a plane that it learns to
// tell apart.
#pragma once

#include <torch/torch.h>

#include <utility>

namespace points {

struct NetImpl : torch::nn::Module {
  torch::nn::Linear in{2, 64}, out{64, 2};
  torch::nn::BatchNorm1d norm{64};
  NetImpl() {
    register_module("in", in);
    register_module("norm", norm);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(in(x)))); }
};
TORCH_MODULE(Net);

/// Points and their kinds: inside or outside of a circle. Another seed gives other points.
inline std::pair<at::Tensor, at::Tensor> batch(std::int64_t seed, std::int64_t size = 64) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const at::Tensor x = torch::randn({size, 2});
  return {x, x.square().sum(1).lt(1.4).to(at::kLong)};
}

/// The share of a large batch that the network gets right.
template <class Model>
double accuracy(Model& model) {
  const torch::NoGradGuard no_grad;
  const auto [x, kind] = batch(1'000'000, 2000);
  return model(x).argmax(1).eq(kind).to(at::kFloat).mean().template item<double>();
}

}  // namespace points
