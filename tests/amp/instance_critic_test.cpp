// A critic with instance norms at the whole-model levels: its statistics are float's, so that the
// loss scale finds its place instead of running to its floor.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

struct InstanceCriticImpl : torch::nn::Module {
  InstanceCriticImpl() {
    namespace nn = torch::nn;
    const auto convolution = [](std::int64_t in, std::int64_t out) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(2).padding(1));
    };
    const auto norm = [](std::int64_t channels) {
      return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(channels).affine(true));
    };
    const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
    layers = register_module(
        "layers", nn::Sequential(convolution(1, 16), leaky(), convolution(16, 32), norm(32),
                                 leaky(), convolution(32, 64), norm(64), leaky()));
    judge = register_module("judge", nn::Conv2d(nn::Conv2dOptions(64, 1, 4)));
  }
  at::Tensor forward(const at::Tensor& x) { return judge(layers->forward(x)).flatten(); }
  torch::nn::Sequential layers{nullptr};
  torch::nn::Conv2d judge{nullptr};
};
TORCH_MODULE(InstanceCritic);

struct CriticRun {
  std::int64_t skipped;
  double scale;
  double gap;  // the critic's verdict of real images above that of false ones, at the end
};

CriticRun train_critic(const std::string& level) {
  constexpr int kSteps = 80;
  torch::manual_seed(7);
  InstanceCritic critic;
  torch::optim::Adam adam(critic->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.9}));
  Options options{.opt_level = level, .verbosity = 0};
  auto [model, optimizer] = initialize(critic, adam, options);
  const auto ramp = torch::linspace(-1, 1, 32).expand({8, 1, 32, 32});
  at::Tensor gap;
  for (int step = 0; step < kSteps; ++step) {
    // Real images have a slope and a brightness of their own; some are nearly constant.
    const at::Tensor real = ramp * torch::rand({8, 1, 1, 1}) * 0.1 + torch::rand({8, 1, 1, 1}) * 3;
    const at::Tensor fake = torch::rand({8, 1, 32, 32}) * 2 - 1;
    optimizer.zero_grad();
    gap = model(real).mean() - model(fake).mean();
    scale_loss(-gap, optimizer).backward();
    optimizer.step();
  }
  return {optimizer.skipped_steps(), optimizer.loss_scale(), gap.item<double>()};
}

TEST(InstanceCritic, FindsItsScaleAndLearnsWhatFloatLearns) {
  const CriticRun plain = train_critic("O0");
  EXPECT_GT(plain.gap, 1);
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    const CriticRun run = train_critic(level);
    EXPECT_LE(run.skipped, 16) << level;
    if (level == "O1" || level == "O2") {
      EXPECT_GE(run.scale, 1) << level;
    }
    EXPECT_NEAR(run.gap, plain.gap, 0.2 * plain.gap) << level;
  }
}

}  // namespace
}  // namespace mezzo::amp
