#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

/// The loss's gradient with respect to the line's weight is `x`.
at::Tensor x_row(double factor = 1) {
  return torch::tensor({{0.5F, -1.0F, 2.0F}}) * factor;
}

at::Tensor gradient_of(const Optimizer& optimizer) {
  return master_params(optimizer)[0].grad();
}

Options dynamic(const std::string& level) {
  Options options = at_level(level);
  options.loss_scale = "dynamic";
  return options;
}

class EachLevel : public testing::TestWithParam<std::string> {
 protected:
  Line net;
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.125).momentum(0.5)};
};

TEST_P(EachLevel, GradientsAreUnscaledAfterTheScope) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  {
    ScaledLoss scaled = scale_loss(model(x_row()).sum(), optimizer);
    EXPECT_NEAR(scaled->item<double>(), 1024 * 1.5, 1024 * 1e-2);
    scaled.backward();
  }
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer).to(at::kFloat), x_row()));
}

TEST_P(EachLevel, AnOverflowSkipsTheStepAndChangesNothing) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  scale_loss(model(x_row()).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  optimizer.zero_grad();
  const auto before = values_of(*net);
  const at::Tensor master = master_params(optimizer)[0].detach().clone();
  const auto& state =
      static_cast<torch::optim::SGDParamState&>(*optimizer.inner().state().begin()->second);
  const at::Tensor momentum = state.momentum_buffer().clone();

  scale_loss(model(x_row()).sum() * kInf, optimizer).backward();
  const StepResult result = optimizer.step();
  EXPECT_TRUE(result.skipped());
  EXPECT_EQ(result.scale_before(), 1024);
  EXPECT_EQ(result.scale_after(), 512);
  EXPECT_THAT(result.reason(), HasSubstr("line.weight"));
  EXPECT_TRUE(same_values(values_of(*net), before));
  EXPECT_TRUE(torch::equal(master_params(optimizer)[0], master));
  EXPECT_TRUE(torch::equal(state.momentum_buffer(), momentum));
  EXPECT_EQ(optimizer.loss_scale(), 512);
  EXPECT_EQ(optimizer.applied_steps(), 1);
  EXPECT_EQ(optimizer.skipped_steps(), 1);
  EXPECT_FALSE(gradient_of(optimizer).defined()) << "what is not finite is dropped";
}

TEST_P(EachLevel, SeveralBackwardPassesAddUp) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  scale_loss(model(x_row()).sum(), optimizer).backward();
  optimizer.set_loss_scale(256);
  scale_loss(model(x_row(2)).sum(), optimizer).backward();
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer).to(at::kFloat), x_row(3)));
}

TEST_P(EachLevel, DelayedGradientsAddUpAndAreUnscaledTogether) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  optimizer.set_loss_scale(256);
  scale_loss(model(x_row()).sum(), optimizer, {.delay_unscale = true}).backward();
  EXPECT_THROW(optimizer.step(), Error);
  optimizer.set_loss_scale(64);
  scale_loss(model(x_row(2)).sum(), optimizer, {.delay_unscale = true}).backward();
  scale_loss(model(x_row(4)).sum(), optimizer).backward();
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer).to(at::kFloat), x_row(7)));
  EXPECT_TRUE(optimizer.step().applied());
}

TEST_P(EachLevel, ADelayAfterASettledBlockKeepsItsGradients) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  optimizer.set_loss_scale(256);
  scale_loss(model(x_row()).sum(), optimizer).backward();
  scale_loss(model(x_row(2)).sum(), optimizer, {.delay_unscale = true}).backward();
  scale_loss(model(x_row(4)).sum(), optimizer).backward();
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer).to(at::kFloat), x_row(7)));
}

TEST_P(EachLevel, AnExceptionInTheScopeUndoes) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  scale_loss(model(x_row()).sum(), optimizer).backward();
  const auto attempt = [&model = model, &optimizer = optimizer] {
    ScaledLoss scaled = scale_loss(model(x_row(5)).sum() * kInf, optimizer);
    scaled.backward();
    throw std::runtime_error("from the user");
  };
  EXPECT_THROW(attempt(), std::runtime_error);
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer).to(at::kFloat), x_row()));
  EXPECT_EQ(optimizer.loss_scale(), 1024);
  EXPECT_TRUE(optimizer.step().applied());
}

TEST_P(EachLevel, DelayedOverflowCheckTakesTheStepAndLeavesTheScale) {
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  scale_loss(model(x_row()).sum() * kInf, optimizer, {.delay_overflow_check = true}).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_EQ(optimizer.loss_scale(), 1024);
  EXPECT_EQ(state_dict(optimizer).at("loss_scaler0").unskipped, 0);
}

TEST_P(EachLevel, DeferredUnscalingGivesTheSameWeights) {
  Line other;
  torch::optim::SGD other_sgd(other->parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
  auto [model, optimizer] = initialize(net, sgd, dynamic(GetParam()));
  Options options = dynamic(GetParam());
  options.defer_unscale = true;
  auto [deferred, deferred_optimizer] = initialize(other, other_sgd, options);
  for (const double factor : {1.0, kInf, 2.0}) {
    optimizer.zero_grad();
    deferred_optimizer.zero_grad();
    scale_loss(model(x_row()).sum() * factor, optimizer).backward();
    scale_loss(deferred(x_row()).sum() * factor, deferred_optimizer).backward();
    EXPECT_EQ(optimizer.step().applied(), deferred_optimizer.step().applied());
    EXPECT_EQ(optimizer.loss_scale(), deferred_optimizer.loss_scale());
  }
  EXPECT_TRUE(torch::equal(net->line->weight, other->line->weight));
  EXPECT_EQ(deferred_optimizer.skipped_steps(), 1);
}

INSTANTIATE_TEST_SUITE_P(ScaleLoss, EachLevel, testing::ValuesIn(kLevels),
                         [](const auto& row) { return row.param; });

TEST(ScaleLoss, TheScaleDoublesAfterTheGrowthInterval) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = initialize(
      net, sgd, {.opt_level = "O1", .init_loss_scale = 8, .growth_interval = 3, .verbosity = 0});
  for (int step = 0; step < 7; ++step) {
    optimizer.zero_grad();
    scale_loss(model(x_row()).sum(), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(optimizer.loss_scale(), 32);
  EXPECT_EQ(state_dict(optimizer).at("loss_scaler0"), (ScalerState{32, 1}));
}

TEST(ScaleLoss, AStaticScaleIsCheckedToo) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  Options options = at_level("O0");
  options.loss_scale = 128;
  auto [model, optimizer] = initialize(net, sgd, options);
  scale_loss(model(x_row()).sum() * kInf, optimizer).backward();
  EXPECT_TRUE(optimizer.step().skipped());
  EXPECT_EQ(optimizer.loss_scale(), 128);
}

TEST(ScaleLoss, AScaleOfOneIsUncheckedUnlessAsked) {
  for (const bool asked : {false, true}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.01);
    Options options = at_level("O0");
    if (asked) options.check_finite = true;
    auto [model, optimizer] = initialize(net, sgd, options);
    scale_loss(model(x_row()).sum() * kInf, optimizer).backward();
    EXPECT_EQ(optimizer.step().skipped(), asked);
  }
}

TEST(ScaleLoss, StopsAfter50SkippedStepsAtTheFloorAndNamesTheParameter) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = initialize(
      net, sgd, {.opt_level = "O1", .min_loss_scale = 1.0, .init_loss_scale = 2, .verbosity = 0});
  const auto skip = [&model = model, &optimizer = optimizer] {
    scale_loss(model(x_row()).sum() * kInf, optimizer).backward();
    return optimizer.step();
  };
  for (int step = 0; step < 50; ++step)
    EXPECT_TRUE(skip().skipped());  // one to reach the floor, 49 at it
  try {
    skip();
    FAIL() << "the 50th overflow at the floor must throw";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("line.weight"));
    EXPECT_THAT(error.what(), HasSubstr("50"));
  }
}

TEST(ScaleLoss, ASkippedStepGivesBackBatchNormStatistics) {
  for (const bool protects : {true, false}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.01);
    Options options = at_level("O1");
    options.protect_batchnorm = protects;
    auto [model, optimizer] = initialize(net, sgd, options);
    const at::Tensor mean = net->norm->running_mean.clone();
    scale_loss(loss_of(model), optimizer, {.delay_unscale = true}).backward();
    scale_loss(loss_of(model) * kInf, optimizer).backward();
    EXPECT_FALSE(torch::equal(net->norm->running_mean, mean));
    EXPECT_TRUE(optimizer.step().skipped());
    EXPECT_EQ(torch::equal(net->norm->running_mean, mean), protects);
    EXPECT_EQ(net->norm->num_batches_tracked.item<int>(), protects ? 0 : 2);
    scale_loss(loss_of(model), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
    EXPECT_FALSE(torch::equal(net->norm->running_mean, mean));
  }
}

TEST(ScaleLoss, ASkippedStepGivesBackStatisticsOfBatchNormsThatCameLater) {
  torch::nn::Sequential net{torch::nn::Linear(4, 2)};
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  torch::nn::BatchNorm1d late(2);
  net->push_back(late);
  optimizer.add_param_group(late->parameters());
  const auto step = [&model = model, &optimizer = optimizer](double factor) {
    optimizer.zero_grad();
    scale_loss(model(inputs() * 3).square().sum() * factor, optimizer).backward();
    return optimizer.step().applied();
  };
  EXPECT_TRUE(step(1));
  const std::vector<at::Tensor> before = values_of(*net);
  EXPECT_FALSE(step(kInf));
  EXPECT_TRUE(same_values(values_of(*net), before));
}

TEST(ScaleLoss, ASkippedStepGivesBackProtectedTensorsAndRandomState) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  Options options = at_level("O1");
  options.protect_rng = true;
  auto [model, optimizer] = initialize(net, sgd, options);
  at::Tensor average = torch::zeros({3});
  optimizer.protect({average});
  torch::manual_seed(5);
  const at::Tensor loss = loss_of(model);
  const at::Tensor drawn = torch::rand({4});
  average.fill_(1);
  scale_loss(loss * kInf, optimizer).backward();
  optimizer.step();
  EXPECT_TRUE(average.eq(0).all().item<bool>());
  EXPECT_TRUE(torch::equal(torch::rand({4}), drawn));
}

TEST(ScaleLoss, EachLossHasItsScaleAndSkipsItsOptimizersOnly) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.01);
  torch::optim::SGD second_sgd(second->parameters(), 0.01);
  auto [models, optimizers] =
      initialize(std::tie(first, second), std::tie(first_sgd, second_sgd),
                 {.opt_level = "O2", .num_losses = 2, .init_loss_scale = 1024, .verbosity = 0});
  auto& [a, b] = models;
  auto& [opt_a, opt_b] = optimizers;
  scale_loss(a(x_row()).sum() * kInf, opt_a, {.loss_id = 0}).backward();
  scale_loss(b(x_row()).sum(), opt_b, {.loss_id = 1}).backward();
  EXPECT_TRUE(opt_a.step().skipped());
  EXPECT_TRUE(opt_b.step().applied());
  EXPECT_EQ(opt_b.loss_scale(0), 512);
  EXPECT_EQ(opt_a.loss_scale(1), 1024);

  scale_loss(a(x_row()).sum() + b(x_row()).sum() * kInf, optimizers).backward();
  EXPECT_TRUE(opt_a.step().skipped()) << "one flag decides for all optimizers of a loss";
  EXPECT_TRUE(opt_b.step().skipped());
  scale_loss(a(x_row()).sum() + b(x_row()).sum(), {opt_a, opt_b}).backward();
  EXPECT_TRUE(opt_a.step().applied());
  EXPECT_TRUE(opt_b.step().applied());
}

TEST_P(EachLevel, AParameterOfTwoOptimizersIsUnscaledOnce) {
  // The second one cannot leave its gradients to the step, which the first one's would take away.
  for (const bool defer_unscale : {false, true}) {
    Line shared;
    torch::optim::SGD one(shared->parameters(), 0.25);
    optim::FusedSGD other(shared->parameters(), optim::FusedSGDOptions(0.5));
    Options options = dynamic(GetParam());
    options.defer_unscale = defer_unscale;
    auto [model, optimizers] = initialize(shared, std::tie(one, other), options);
    auto& [first, second] = optimizers;
    scale_loss(model(x_row()).sum(), optimizers).backward();
    EXPECT_TRUE(torch::equal(gradient_of(first).to(at::kFloat), x_row()));
    EXPECT_TRUE(torch::equal(gradient_of(second).to(at::kFloat), x_row()));
    const auto throws = [&, &model = model, &optimizers = optimizers] {
      ScaledLoss scaled = scale_loss(model(x_row()).sum() * kInf, optimizers);
      scaled.backward();
      throw std::runtime_error("inside");
    };
    EXPECT_THROW(throws(), std::runtime_error);
    EXPECT_TRUE(torch::equal(gradient_of(first).to(at::kFloat), x_row()));
    second.step();
    first.step();
    const at::Tensor expected = torch::tensor({{1.0F, -0.5F, 0.25F}}) - 0.75 * x_row();
    EXPECT_TRUE(torch::allclose(master_params(first)[0].to(at::kFloat), expected));
  }
}

TEST(ScaleLoss, VectorsOfModelsAndOptimizers) {
  std::vector<Line> nets{Line(), Line()};
  torch::optim::SGD first(nets[0]->parameters(), 0.01);
  torch::optim::Adam second(nets[1]->parameters(), 0.01);
  std::vector<std::reference_wrapper<torch::optim::Optimizer>> refs{first, second};
  auto [models, optimizers] = initialize(nets, refs, at_level("O2"));
  scale_loss(models[0](x_row()).sum() + models[1](x_row()).sum(), std::span<Optimizer>(optimizers))
      .backward();
  EXPECT_TRUE(optimizers[0].step().applied());
  EXPECT_TRUE(optimizers[1].step().applied());
}

TEST(ScaleLoss, StateDictsCarryScalesAndCounters) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      initialize(net, sgd, {.opt_level = "O1", .num_losses = 2, .verbosity = 0});
  StateDict dict = state_dict(optimizer);
  EXPECT_EQ(dict.keys(), (std::vector<std::string>{"loss_scaler0", "loss_scaler1"}));
  dict.at("loss_scaler1") = {512, 7};
  load_state_dict(optimizer, dict);
  EXPECT_EQ(optimizer.loss_scale(1), 512);
  EXPECT_EQ(state_dict(optimizer), dict);

  std::stringstream file;
  torch::save(dict, file);
  StateDict loaded;
  torch::load(loaded, file);
  EXPECT_EQ(loaded, dict);

  StateDict unexpected;
  unexpected.insert("loss_scaler0", {8, 0});
  unexpected.insert("momentum", {8, 0});
  EXPECT_THROW(load_state_dict(optimizer, unexpected), Error);
  EXPECT_EQ(optimizer.loss_scale(0), 65536) << "nothing is half loaded";
}

TEST(ScaleLoss, PublicScaleAndUnscaleServeGradientPenalties) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  const at::Tensor x = x_row().requires_grad_(true);
  const at::Tensor out = model(x).sum();
  auto gradients = torch::autograd::grad({optimizer.scale(out)}, {x}, {}, true, true);
  optimizer.unscale(gradients);
  EXPECT_TRUE(torch::allclose(gradients[0], net->line->weight.to(at::kFloat), 1e-3));
  scale_loss(gradients[0].pow(2).sum(), optimizer).backward();
  EXPECT_TRUE(torch::allclose(gradient_of(optimizer), 2 * net->line->weight, 1e-2));
}

TEST(ScaleLoss, CreateGraphKeepsGradientsDifferentiable) {
  for (const std::string level : {"O0", "O1"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.01);
    auto [model, optimizer] = initialize(net, sgd, dynamic(level));
    scale_loss(model(x_row()).pow(2).sum(), optimizer).backward({}, true, true);
    const at::Tensor gradient = net->line->weight.grad();
    EXPECT_TRUE(torch::allclose(gradient.detach(), 2 * 1.5 * x_row(), 1e-2)) << level;
    const auto second = torch::autograd::grad({gradient.sum()}, {net->line->weight});
    EXPECT_TRUE(torch::allclose(second[0], 2 * x_row().sum() * x_row(), 1e-2)) << level;
  }
}

}  // namespace
}  // namespace mezzo::amp
