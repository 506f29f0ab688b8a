// The most frequent complaints of Apex Amp's users, each as a test that it cannot be said of Mezzo.
// The numbers only rank them. Those about parallel training (8, 11 to 14, 22) are in the file of
// this name in tests/parallel; 16 (installation) is tested by tests/install and tests/configure as
// well.
#include <gmock/gmock.h>

#include <filesystem>
#include <limits>
#include <sstream>

#include "amp/optimizer_state.h"
#include "amp/training.h"
#include "mezzo/cast_counts.h"
#include "mezzo/error.h"
#include "mezzo/hardware.h"

namespace mezzo::amp {
namespace {

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

TEST(Complaint, Number2AResumedTrainingHasNoSpike) {
  const auto file = std::filesystem::path(testing::TempDir()) / "mezzo_complaint_2.ckpt";
  const auto train = [](auto& model, auto& optimizer, int steps) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of(model);
      losses.push_back(loss.template item<double>());
      scale_loss(loss, optimizer).backward();
      optimizer.step();
    }
    return losses;
  };
  TinyNet net;
  torch::optim::Adam adam(net->parameters(), 1e-2);
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  train(model, optimizer, 5);
  save_checkpoint(file.string(), model, optimizer);
  const auto expected = train(model, optimizer, 5);
  TinyNet other;
  torch::optim::Adam other_adam(other->parameters(), 1e-2);
  auto [resumed, resumed_optimizer] = initialize(other, other_adam, at_level("O2"));
  train(resumed, resumed_optimizer, 1);
  load_checkpoint(file.string(), resumed, resumed_optimizer);
  EXPECT_EQ(train(resumed, resumed_optimizer, 5), expected);
  std::filesystem::remove(file);
}

TEST(Complaint, Number3ACopyOfTheNetworkHasNothingThatPointsToTheOriginal) {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                            torch::nn::Linear(8, 2));
  auto model = initialize(net, at_level("O2"));
  const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  const torch::NoGradGuard no_grad;
  model.eval();
  copy->eval();
  const at::Tensor before = model(inputs());
  for (at::Tensor& each : copy->parameters()) each.zero_();
  EXPECT_TRUE(torch::equal(model(inputs()), before));
  EXPECT_TRUE(copy->forward(inputs().to(at::kHalf)).eq(0).all().item<bool>());
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

TEST(Complaint, Number5CastWeightsServeAnyMixOfModesViewsAndRepetitions) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  for (int step = 0; step < 3; ++step) {
    {
      const torch::NoGradGuard no_grad;
      model(inputs());
    }
    {
      const c10::InferenceMode inference;
      model(inputs());
    }
    const at::Tensor twice = model.call([](TinyNetImpl& each) {
      const at::Tensor weight = each.first->weight;
      return torch::matmul(inputs(), weight.t()) + torch::matmul(inputs(), weight.transpose(0, 1));
    });
    scale_loss(twice.mean() + loss_of(model), optimizer).backward();
    EXPECT_TRUE(net->first->weight.grad().isfinite().all().item<bool>());
    EXPECT_TRUE(optimizer.step().applied());
    optimizer.zero_grad();
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

TEST(Complaint, Number7GradientPenaltiesAreUnscaledAtEveryLevel) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor x = row().requires_grad_(true);
    const at::Tensor out = model(x).sum();
    auto gradients = torch::autograd::grad({optimizer.scale(out)}, {x}, {}, true, true);
    optimizer.unscale(gradients);
    const at::Tensor weight = net->line->weight.detach().to(at::kFloat);
    EXPECT_TRUE(torch::allclose(gradients[0].detach(), weight, 1e-2)) << level;
    const at::Tensor penalty = gradients[0].square().sum();
    scale_loss(penalty, optimizer).backward();
    EXPECT_TRUE(
        torch::allclose(master_params(optimizer)[0].grad().to(at::kFloat), 2 * weight, 1e-2))
        << level;
    EXPECT_TRUE(optimizer.step().applied()) << level;
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

TEST(Complaint, Number15PartsOfAModelMayLiveOnSeveralDevices) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is one device";
  TinyNet net;
  net->second->to(at::kCUDA);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (const std::string& level : kLevels) {
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor hidden = model.call(&TinyNetImpl::features, inputs());
    const at::Tensor out = model.call(
        [](TinyNetImpl& each, const at::Tensor& x) { return each.second(x.to(at::kCUDA)); },
        hidden);
    scale_loss(out.mean() * kInf, optimizer).backward();
    EXPECT_TRUE(optimizer.step().skipped() || level == "O0" || level == "O3") << level;
  }
}

TEST(Complaint, Number16WhatTheMachineCanDoIsTold) {
  EXPECT_FALSE(hardware_report().empty());
  EXPECT_FALSE(kernel_set().empty());
}

struct ProbabilityImpl : torch::nn::Module {
  ProbabilityImpl() : line(register_module("line", torch::nn::Linear(4, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor probability = torch::sigmoid(line(x));
    return torch::binary_cross_entropy(probability, torch::ones_like(probability));
  }
  torch::nn::Linear line;
};
TORCH_MODULE(Probability);

TEST(Complaint, Number17BinaryCrossEntropyIsNeverAnError) {
  for (const std::string level : {"O0", "O1", "O4"}) {
    Probability net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor loss = model(inputs());
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

struct UncoveredImpl : torch::nn::Module {
  UncoveredImpl() : line(register_module("line", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::einsum("ij,kj->ik", {line(x), x});
    y = y.clamp_(-1, 1).exp_() + torch::acos(x.slice(1, 0, 1) * 0.5);
    return torch::logsumexp(y, 1) + torch::cdist(x, line(x).to(x.scalar_type())).sum(1);
  }
  torch::nn::Linear line;
};
TORCH_MODULE(Uncovered);

TEST(Complaint, Number18OperatorsThatNoListOfApexHasMeetNoWrongTypes) {
  for (const std::string level : {"O0", "O1", "O4"}) {
    Uncovered net;
    torch::optim::SGD sgd(net->parameters(), 0.01);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(model(inputs()).mean(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
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

TEST(Complaint, Number20OneLoopAccumulatesAndTheWrongOrderMovesNothing) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor before = master_params(optimizer)[0].detach().clone();
    EXPECT_TRUE(optimizer.step().empty()) << level;
    for (int micro = 0; micro < 4; ++micro) {
      scale_loss(model(row()).sum() / 4, optimizer).backward();
    }
    EXPECT_TRUE(optimizer.step().applied());
    optimizer.zero_grad();
    EXPECT_TRUE(torch::allclose(master_params(optimizer)[0].to(at::kFloat),
                                before.to(at::kFloat) - 0.125 * row(), 1e-2))
        << level;
  }
}

TEST(Complaint, Number21CastsAreCountedAndAWeightIsCastOnceAStep) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  for (int step = 0; step < 4; ++step) {
    const auto before = cast_counts().weight_casts;
    optimizer.zero_grad();
    scale_loss(loss_of(model) + loss_of(model), optimizer).backward();
    optimizer.step();
    if (step == 0) continue;  // the copies are made
    EXPECT_EQ(cast_counts().weight_casts - before, 4) << "two weights and two biases";
  }
}

TEST(Complaint, Number23GradientsAreClearedToNothingOrToZero) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    for (const bool to_none : {true, false}) {
      scale_loss(loss_of(model), optimizer).backward();
      optimizer.zero_grad(to_none);
      for (const at::Tensor& master : master_params(optimizer)) {
        EXPECT_EQ(master.grad().defined(), !to_none) << level;
        if (!to_none) {
          EXPECT_TRUE(master.grad().eq(0).all().item<bool>()) << level;
        }
      }
    }
  }
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
    EXPECT_FALSE(optimizer.shared()->snapshot().is_taken()) << level;
  }
}

/// A stand-in for LARC: something around an optimizer, with a step of its own.
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
