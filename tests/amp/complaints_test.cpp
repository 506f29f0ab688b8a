// What users of Apex Amp complained about most, and defects of its code, each as a test that it
// cannot be said of Mezzo. The numbers only rank them. Complaints about casting, parallel training
// and fused kernels are tested where those live.
#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "amp/optimizer_state.h"
#include "amp/training.h"
#include "mezzo/error.h"

namespace mezzo::amp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor row() {
  return torch::tensor({{0.5F, -1.0F, 2.0F}});
}

TEST(Complaint, Number1TheScaleNeverFallsToZero) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  int steps = 0;
  try {
    for (; steps < 1000; ++steps) {
      scale_loss(model(row()).sum() * kInf, optimizer).backward();
      optimizer.step();
    }
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'line.weight'"));
  }
  EXPECT_EQ(steps, 24 + 50 - 1);  // 2^10 to 2^-14, then 50 at the floor
  EXPECT_EQ(optimizer.loss_scale(), 0x1p-14);
}

TEST(Complaint, Number4ASecondTrainingInOneProcessKnowsNothingOfTheFirst) {
  for (const std::string level : {"O2", "O1", "O0", "O3", "O2"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_EQ(optimizer.loss_scale(), level == "O0" || level == "O3" ? 1 : 1024) << level;
    scale_loss(model(row()).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

TEST(Complaint, Number6EvaluationAfterLoadingUsesTheLoadedWeights) {
  for (const std::string& level : kLevels) {
    Line trained;
    {
      const torch::NoGradGuard no_grad;
      trained->line->weight.fill_(2);
    }
    std::stringstream file;
    torch::save(trained, file);
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const torch::NoGradGuard no_grad;
    model.eval();
    model(row());
    torch::load(net, file);
    EXPECT_NEAR(model(row()).item<double>(), 3.0, 1e-2) << level;
    net->line->weight.mul_(2);
    EXPECT_NEAR(model(row()).item<double>(), 6.0, 1e-2) << level;
  }
}

TEST(Complaint, Number9TheOrderOfAddingSteppingAndScalingDoesNotMatter) {
  for (const bool before : {true, false}) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
    const auto train = [&model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      scale_loss(loss_of(model), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
    };
    if (!before) train();
    // Behind the handle's back as well.
    optimizer.inner().add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
    const at::Tensor weight = net->second->weight.detach().clone();
    train();
    EXPECT_FALSE(torch::equal(net->second->weight, weight));
    EXPECT_EQ(master_params(optimizer)[2].scalar_type(), at::kFloat);
  }
}

TEST(Complaint, Number10SchedulersOfTheCallersOptimizerStillWork) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 1.0);
  torch::optim::StepLR made_before(sgd, 1, 0.5);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  made_before.step();
  made_before.step();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  const at::Tensor before = master_params(optimizer)[0].detach().clone();
  scale_loss(model(row()).sum(), optimizer).backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(master_params(optimizer)[0], before - 0.5 * row()));
}

TEST(Complaint, Number19FrozenAndConvertedBatchNormsKeepFloatStatistics) {
  TinyNet net(/*affine=*/false);
  net->norm->eval();
  auto model = initialize(net, at_level("O2"));
  EXPECT_EQ(net->norm->running_var.scalar_type(), at::kFloat);
  const at::Tensor before = net->norm->running_mean.clone();
  model(inputs());
  EXPECT_TRUE(torch::equal(net->norm->running_mean, before));
}

TEST(Complaint, Number24ModelsThatAreMovedUnfrozenOrResetAfterwardsKeepTraining) {
  TinyNet net;
  for (at::Tensor& parameter : net->first->parameters()) parameter.requires_grad_(false);
  torch::optim::Adam adam(net->parameters(), 1e-2);
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  const auto train = [&model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
  };
  train();
  for (at::Tensor& parameter : net->first->parameters()) parameter.requires_grad_(true);
  model->to(at::kCPU);
  const at::Tensor before = net->first->weight.detach().clone();
  train();
  train();
  EXPECT_FALSE(torch::equal(net->first->weight, before));
  net->second->reset_parameters();
  const at::Tensor fresh = net->second->weight.detach().clone();
  train();
  EXPECT_TRUE(torch::allclose(net->second->weight.to(at::kFloat), fresh.to(at::kFloat), 0.1, 0.05))
      << "training goes on from the new values";
}

TEST(Complaint, Number25EvaluationLoopsDoNotGrow) {
  for (const std::string level : {"O1", "O2", "O4"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    model.eval();
    const torch::NoGradGuard no_grad;
    model(inputs());
    const auto uses = net->first->weight.use_count();
    for (int i = 0; i < 100; ++i) model(inputs());
    EXPECT_EQ(net->first->weight.use_count(), uses) << level;
    EXPECT_FALSE(optimizer.state()->snapshot().is_taken()) << level;
  }
}

TEST(Defect, Number8TuplesOfOptimizersAreScopedLikeLists) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.125);
  torch::optim::SGD second_sgd(second->parameters(), 0.125);
  auto [models, optimizers] =
      initialize(std::tie(first, second), std::tie(first_sgd, second_sgd), at_level("O2"));
  auto& [a, b] = models;
  for (int i = 0; i < 2; ++i) scale_loss(a(row()).sum() + b(row()).sum(), optimizers).backward();
  EXPECT_TRUE(torch::allclose(master_params(std::get<1>(optimizers))[0].grad(), 2 * row()));
}

TEST(Defect, Number9AccumulationAtAStaticScaleOfOneKeepsFloatGradients) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O2");
  options.loss_scale = 1.0;
  auto [model, optimizer] = initialize(net, sgd, options);
  scale_loss(loss_of(model), optimizer).backward();
  const at::Tensor once = net->norm->weight.grad().clone();
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(torch::allclose(net->norm->weight.grad(), 2 * once, 1e-2, 1e-3));
}

TEST(Defect, Number10DelayedUnscalingInTheFirstIterationKeepsFloatGradients) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss(loss_of(model), optimizer, {.delay_unscale = true}).backward();
  const at::Tensor scaled = net->norm->weight.grad().clone() / 1024;
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(torch::allclose(net->norm->weight.grad(), 2 * scaled, 1e-2, 1e-3));
}

TEST(Defect, Number14OptimizerStateIsNotRoundedThroughHalf) {
  Line net;
  torch::optim::Adam adam(net->parameters(), 1e-3);
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    scale_loss(model(row() * 1e-3).sum(), optimizer).backward();
    optimizer.step();
  }
  const auto second_moment = [](torch::optim::Adam& each) {
    return static_cast<torch::optim::AdamParamState&>(*each.state().begin()->second)
        .exp_avg_sq()
        .clone();
  };
  const at::Tensor moment = second_moment(adam);
  EXPECT_LT(moment.max().item<double>(), 6e-8) << "half would hold zero";
  std::stringstream file;
  torch::save(optimizer, file);
  Line other;
  torch::optim::Adam other_adam(other->parameters(), 1e-3);
  auto [other_model, other_optimizer] = initialize(other, other_adam, at_level("O2"));
  torch::load(other_optimizer, file);
  EXPECT_TRUE(torch::equal(second_moment(other_adam), moment));
}

/// What LARC is: something around an optimizer, with a step of its own.
struct AroundAnOptimizer {
  explicit AroundAnOptimizer(torch::optim::Optimizer& wrapped) : wrapped_(wrapped) {}
  torch::optim::Optimizer& inner() { return wrapped_; }
  void step() {
    ++steps;
    for (auto& group : wrapped_.param_groups()) {
      for (at::Tensor& parameter : group.params()) parameter.mutable_grad().mul_(0.5);
    }
    wrapped_.step();
  }
  int steps = 0;

 private:
  torch::optim::Optimizer& wrapped_;
};

TEST(Wrapper, AroundAnOptimizerMakesTheSteps) {
  for (const std::string level : {"O0", "O1", "O2"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    AroundAnOptimizer larc(sgd);
    auto [model, optimizer] = initialize(net, larc, at_level(level));
    const at::Tensor before = master_params(optimizer)[0].detach().clone();
    scale_loss(model(row()).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
    EXPECT_EQ(larc.steps, 1);
    EXPECT_TRUE(torch::allclose(master_params(optimizer)[0], before - 0.125 * 0.5 * row()))
        << level;
    scale_loss(model(row()).sum() * kInf, optimizer).backward();
    optimizer.step();
    EXPECT_EQ(larc.steps, level == "O0" ? 2 : 1);
  }
}

}  // namespace
}  // namespace mezzo::amp
