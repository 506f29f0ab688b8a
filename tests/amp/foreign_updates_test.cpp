// Weights inside our scopes that somebody else's optimizer moves.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/amp.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/grad_scaler.h"

namespace mezzo::amp {
namespace {

struct ForeignUpdates : testing::Test {
  ForeignUpdates() {
    const torch::NoGradGuard no_grad;
    net->weight.zero_();
  }
  // The result of one weight of a network, so that it shows itself. It stands in a sum of two
  // terms: a product over one element is a multiplication, and would run in float.
  at::Tensor cast_forward() {
    const Autocast scope(policy);
    return net(one).to(at::kFloat);
  }
  void expect_current(const at::Tensor& output) {
    EXPECT_EQ(output.item<float>(), net->weight[0][0].item<float>());
  }

  torch::nn::Linear net{torch::nn::LinearOptions(2, 1).bias(false)};
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(1.0)};
  at::Tensor one = torch::tensor({{1.0F, 0.0F}});

  Policy policy = Policy::defaults(at::kBFloat16);
};

TEST_F(ForeignUpdates, ALoopWithAGradScalerMayEvaluateBeforeTheStep) {
  GradScaler scaler;
  for (int i = 0; i < 4; ++i) {
    sgd.zero_grad();
    const at::Tensor y = cast_forward();
    expect_current(y);
    scaler.scale(-y.sum()).backward();
    {
      const torch::NoGradGuard no_grad;
      cast_forward();
    }
    scaler.step(sgd);
    scaler.update();
  }
  EXPECT_EQ(net->weight[0][0].item<float>(), 4);
}

TEST_F(ForeignUpdates, AModelWithoutAnOptimizerFollowsABareOne) {
  auto model = initialize(net, {.opt_level = "O4", .verbosity = 0});
  for (int i = 0; i < 4; ++i) {
    sgd.zero_grad();
    const at::Tensor y = model(one);
    expect_current(y);
    (-y.sum()).backward();
    {
      const torch::NoGradGuard no_grad;
      model(one);
    }
    sgd.step();
  }
}

TEST_F(ForeignUpdates, TheCopiesOfAnOptimizersWeightsAreKeptWhileItLives) {
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O4", .verbosity = 0});
  std::int64_t casts = 0;
  for (int i = 0; i < 4; ++i) {
    if (i == 1) casts = cast_counts().weight_casts;
    optimizer.zero_grad();
    const at::Tensor y = model(one);
    expect_current(y);
    {
      const torch::NoGradGuard no_grad;
      model(one);
    }
    scale_loss(-y.sum(), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(cast_counts().weight_casts - casts, 3);
}

TEST_F(ForeignUpdates, ABareOptimizerMayGoOnWhenTheHandlesAreGone) {
  {
    auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O4", .verbosity = 0});
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      scale_loss(-model(one).sum(), optimizer).backward();
      optimizer.step();
    }
  }
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    const at::Tensor y = cast_forward();
    expect_current(y);
    (-y.sum()).backward();
    {
      const torch::NoGradGuard no_grad;
      cast_forward();
    }
    sgd.step();
  }
}

}  // namespace
}  // namespace mezzo::amp
