// Steps in which no parameter has a gradient: neither made nor skipped.
#include <gmock/gmock.h>

#include <memory>

#include "amp/training.h"
#include "mezzo/ema.h"
#include "mezzo/optim.h"
#include "mezzo/schedule.h"

namespace mezzo::amp {
namespace {

struct EmptyStep : testing::TestWithParam<std::tuple<std::string, bool, bool>> {
  static std::string level() { return std::get<0>(GetParam()); }
  static std::unique_ptr<torch::optim::Optimizer> optimizer_of(const torch::nn::Module& net) {
    if (!std::get<1>(GetParam())) {
      return std::make_unique<torch::optim::SGD>(
          net.parameters(), torch::optim::SGDOptions(0.125).momentum(0.5).weight_decay(0.5));
    }
    return std::make_unique<optim::FusedSGD>(
        net.parameters(), optim::FusedSGDOptions(0.125).momentum(0.5).weight_decay(0.5));
  }
  static Options options() {
    Options result = at_level(level());
    result.verbosity = 1;
    result.defer_unscale = std::get<2>(GetParam());
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, EmptyStep,
                         testing::Combine(testing::ValuesIn(kLevels), testing::Bool(),
                                          testing::Bool()));

TEST_P(EmptyStep, IsNeitherMadeNorSkippedAndMovesNothing) {
  if (level() == "O3" && std::get<1>(GetParam())) return;  // fused optimizers step floats
  const auto train = [&](bool with_empty_steps) {
    torch::manual_seed(3);
    TinyNet net;
    const auto inner = optimizer_of(*net);
    const Listener listener;
    auto [model, optimizer] = initialize(net, *inner, options());
    Schedule schedule(torch::optim::StepLR(*inner, 2, 0.5), optimizer);
    Ema ema(model, 0.5);
    const auto empty_step = [&, &model = model, &optimizer = optimizer](bool with_scope) {
      const std::int64_t applied = optimizer.applied_steps();
      const double scale = optimizer.loss_scale();
      const std::vector<at::Tensor> before = values_of(*net);
      optimizer.zero_grad();
      // A loss of other parameters than the optimizer's.
      if (with_scope) scale_loss(torch::ones({}).requires_grad_(true), optimizer).backward();
      const StepResult result = optimizer.step();
      EXPECT_TRUE(result.empty());
      EXPECT_FALSE(result.applied());
      EXPECT_FALSE(result.skipped());
      EXPECT_EQ(result.reason(), "no parameter has a gradient");
      EXPECT_EQ(result.scale_after(), scale);
      EXPECT_FALSE(schedule.step());
      EXPECT_FALSE(ema.update());
      EXPECT_EQ(optimizer.applied_steps(), applied);
      EXPECT_EQ(optimizer.skipped_steps(), 0);
      EXPECT_TRUE(same_values(values_of(*net), before));
    };
    int empty_steps = 0;
    for (int step = 0; step < 3; ++step) {
      if (with_empty_steps) {
        empty_step(step == 1);
        EXPECT_EQ(optimizer.empty_steps(), ++empty_steps);
      }
      optimizer.zero_grad();
      scale_loss(loss_of(model), optimizer).backward();
      const StepResult result = optimizer.step();
      EXPECT_TRUE(result.applied());
      EXPECT_FALSE(result.empty());
      EXPECT_TRUE(schedule.step());
      EXPECT_TRUE(ema.update());
    }
    EXPECT_EQ(listener.count("had no gradients: its step moved nothing"), with_empty_steps ? 1 : 0);
    std::vector<at::Tensor> values = values_of(*net);
    for (const at::Tensor& each : master_params(optimizer)) values.push_back(each.detach().clone());
    return values;
  };
  EXPECT_TRUE(same_values(train(true), train(false)));
}

TEST_P(EmptyStep, FollowsASkippedOneWhoseGradientsWereDropped) {
  if (level() == "O0" || level() == "O3") return;
  TinyNet net;
  const auto inner = optimizer_of(*net);
  Options quiet = options();
  quiet.verbosity = 0;
  auto [model, optimizer] = initialize(net, *inner, quiet);
  scale_loss(loss_of(model) * kInf, optimizer).backward();
  EXPECT_TRUE(optimizer.step().skipped());
  EXPECT_TRUE(optimizer.step().empty());
  EXPECT_EQ(optimizer.skipped_steps(), 1);
}

TEST(EmptyStep, AClosureWithoutGradientsIsEvaluatedOnce) {
  for (const std::string& level : kLevels) {
    for (const bool repeats : {false, true}) {
      Line net;
      std::unique_ptr<torch::optim::Optimizer> inner;
      if (repeats) {
        inner = std::make_unique<torch::optim::LBFGS>(net->parameters(), 0.5);
      } else {
        inner = std::make_unique<torch::optim::AdamW>(net->parameters());
      }
      auto [model, optimizer] = initialize(net, *inner, at_level(level));
      const std::vector<at::Tensor> before = values_of(*net);
      int evaluations = 0;
      const StepResult result = optimizer.step([&] {
        ++evaluations;
        return torch::ones({});
      });
      EXPECT_TRUE(result.empty()) << level << repeats;
      EXPECT_EQ(evaluations, 1) << level << repeats;
      EXPECT_EQ(optimizer.empty_steps(), 1) << level << repeats;
      EXPECT_TRUE(same_values(values_of(*net), before)) << level << repeats;
    }
  }
}

TEST(EmptyStep, IsOneWithoutMezzoTooSoThatSchedulesAgree) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, {.enabled = false});
  Schedule schedule(torch::optim::StepLR(sgd, 1, 0.5), optimizer);
  EXPECT_TRUE(optimizer.step().empty());
  EXPECT_TRUE(optimizer.step([] { return torch::ones({}); }).empty());
  EXPECT_FALSE(schedule.step());
  model(row()).sum().backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_TRUE(schedule.step());
  EXPECT_EQ(optimizer.empty_steps(), 2);
  EXPECT_EQ(optimizer.applied_steps(), 1);
}

TEST(EmptyStep, OneParameterWithAGradientIsEnough) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(net->second->bias.to(at::kFloat).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

}  // namespace
}  // namespace mezzo::amp
