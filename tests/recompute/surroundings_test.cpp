// The second run finds casts, random state and statistics as the first one found them.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/amp.h"
#include "mezzo/recompute.h"

namespace mezzo {
namespace {

struct LayerImpl : torch::nn::Module {
  LayerImpl()
      : fc(register_module("fc", torch::nn::Linear(16, 16))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})))) {}
  at::Tensor forward(const at::Tensor& x) {
    return torch::dropout(torch::gelu(norm(fc(x))), 0.2, /*train=*/true);
  }
  torch::nn::Linear fc;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Layer);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 4; ++i) layers->push_back(Layer());
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) {
    return segments == 0 ? layers->forward(x) : recompute_sequential(layers, segments, x);
  }
  torch::nn::Sequential layers;
  int segments = 0;
};
TORCH_MODULE(Net);

/// Weights after some steps, and a random number drawn afterwards.
std::vector<at::Tensor> trained(const std::string& level, int segments) {
  torch::manual_seed(3);
  Net net;
  net->segments = segments;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256, .verbosity = 0});
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    amp::scale_loss(model(torch::randn({8, 16})).square().mean(), optimizer).backward();
    optimizer.step();
  }
  std::vector<at::Tensor> result;
  for (const auto& item : amp::model_state_dict(model)) result.push_back(item.value());
  result.push_back(torch::randn({4}));
  return result;
}

TEST(RecomputeSurroundings, TrainingIsTheSameToTheBitAtEveryLevel) {
  for (const char* level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    const auto plain = trained(level, 0);
    for (const int segments : {1, 2, 4}) {
      const auto got = trained(level, segments);
      ASSERT_EQ(got.size(), plain.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(got[i].equal(plain[i])) << level << ", " << segments << ", tensor " << i;
    }
  }
}

TEST(RecomputeSurroundings, ScopesAreThoseOfTheForwardPass) {
  const at::Tensor w = torch::randn({16, 16}).requires_grad_();
  const at::Tensor x = torch::randn({4, 16}).requires_grad_();
  std::vector<at::ScalarType> seen;
  const auto part = [&](const at::Tensor& a) {
    const at::Tensor y = torch::mm(a, w);
    seen.push_back(y.scalar_type());
    return y;
  };
  at::Tensor low, plain;
  {
    const amp::Autocast casts(Policy::defaults(at::kBFloat16));
    low = recompute(part, x);
    const amp::DisableCasts off;
    plain = recompute(part, x);
  }
  low.sum().backward();
  const amp::Autocast others(Policy::defaults(at::kHalf));
  plain.sum().backward();
  const std::vector<at::ScalarType> wanted{at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat};
  EXPECT_EQ(seen, wanted);
}

TEST(RecomputeSurroundings, LibTorchsAutocastIsThatOfTheForwardPass) {
  const at::Tensor w = torch::randn({16, 16}).requires_grad_();
  std::vector<at::ScalarType> seen;
  const auto part = [&](const at::Tensor& a) {
    const at::Tensor y = torch::mm(a, w);
    seen.push_back(y.scalar_type());
    return y;
  };
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = recompute(part, torch::randn({4, 16}));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16}));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(RecomputeSurroundings, RandomNumbersAreRepeatedAndThoseOfTheCallerGoOn) {
  const at::Tensor x = torch::ones({64}).requires_grad_();
  std::vector<at::Tensor> masks;
  const auto part = [&](const at::Tensor& a) {
    masks.push_back(torch::rand({64}));
    return a * masks.back();
  };
  torch::manual_seed(5);
  const at::Tensor y = recompute(part, x);
  const at::Tensor between = torch::rand({4});
  y.sum().backward();
  const at::Tensor after = torch::rand({4});
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_TRUE(masks[0].equal(masks[1]));
  EXPECT_TRUE(x.grad().equal(masks[0]));
  torch::manual_seed(5);
  torch::rand({64});
  EXPECT_TRUE(between.equal(torch::rand({4})));
  EXPECT_TRUE(after.equal(torch::rand({4})));
}

TEST(RecomputeSurroundings, BatchNormsMoveTheirStatisticsOnce) {
  for (const std::optional<double> momentum :
       {std::optional<double>(0.1), std::optional<double>()}) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(8).momentum(momentum));
    torch::nn::BatchNorm1d like(torch::nn::BatchNorm1dOptions(8).momentum(momentum));
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = torch::randn({6, 8}).requires_grad_();
      const auto nested = [&](const at::Tensor& a) { return recompute(norm, a); };
      recompute(nested, x).square().sum().backward();
      like(x).square().sum().backward();
    }
    EXPECT_TRUE(norm->running_mean.equal(like->running_mean));
    EXPECT_TRUE(norm->running_var.equal(like->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
  }
}

}  // namespace
}  // namespace mezzo
