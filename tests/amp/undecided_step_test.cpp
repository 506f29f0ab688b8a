// UndecidedTraining whose scale, flag and decision live on a device: by the CUDA kernels compiled
// for the processor and, where there is a GPU, on it. The same training on the host goes along as
// the reference.
#include <torch/torch.h>

#include <cstdio>
#include <sstream>

#include "amp/undecided_training.h"
#include "mezzo/amp.h"
#include "mezzo/checkpoint.h"
#include "mezzo/error.h"
#include "mezzo/grad_scaler.h"
#include "mezzo/messages.h"
#include "mezzo/optim.h"
#include "mezzo/schedule.h"
#include "optim/step_context.h"
#include "support/cuda_places.h"

namespace mezzo::amp {
namespace {

using testing_cuda::Place;

struct UndecidedCase {
  std::string level;
  bool defers;
};

class UndecidedStep : public testing::TestWithParam<std::tuple<Place, UndecidedCase>> {
 protected:
  void SetUp() override {
    if (place() == Place::kGpu && !testing_cuda::why_no_gpu().empty()) {
      GTEST_SKIP() << testing_cuda::why_no_gpu();
    }
  }
  static Place place() { return std::get<0>(GetParam()); }
  static at::Device device() { return testing_cuda::device_of(place()); }
  static Options options() {
    Options result;
    result.opt_level = std::get<1>(GetParam()).level;
    result.defer_unscale = std::get<1>(GetParam()).defers;
    result.loss_scale = "dynamic";
    result.init_loss_scale = 1024;  // low gradients stay far from overflow
    result.growth_interval = 3;
    result.verbosity = 1;
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Amp, UndecidedStep,
    testing::Combine(testing::Values(Place::kEmulation, Place::kGpu),
                     testing::Values(UndecidedCase{"O1", false}, UndecidedCase{"O1", true},
                                     UndecidedCase{"O2", false}, UndecidedCase{"O2", true},
                                     UndecidedCase{"O5", false})),
    [](const auto& row) {
      const UndecidedCase& one = std::get<1>(row.param);
      return testing_cuda::name_of(std::get<0>(row.param)) + "_" + one.level +
             (one.defers ? "_deferred" : "");
    });

void expect_near_decided(const std::vector<at::Tensor>& got,
                         const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT((got[i] - expected[i]).abs().max().item<double>(), tolerance) << i;
  }
}

class HeardMessages {
 public:
  HeardMessages() {
    before_ = set_message_sink([this](const std::string& text) { texts += text + '\n'; });
  }
  ~HeardMessages() { set_message_sink(before_); }
  HeardMessages(const HeardMessages&) = delete;
  HeardMessages& operator=(const HeardMessages&) = delete;
  std::string texts;

 private:
  MessageSink before_;
};

TEST_P(UndecidedStep, TrainsSkipsAndCountsAsOnTheHost) {
  UndecidedTraining host(at::kCPU, options());
  for (int step = 0; step < 9; ++step) host.step(step, step == 2 || step == 7 ? kInfinity : 1);
  const testing_cuda::KernelsAt kernels(place());
  HeardMessages heard;
  UndecidedTraining ours(device(), options());
  for (int step = 0; step < 9; ++step) {
    const bool spoilt = step == 2 || step == 7;
    const auto before = ours.values();
    const double scale = ours.optimizer().loss_scale();
    const StepResult result = ours.step(step, spoilt ? kInfinity : 1);
    EXPECT_EQ(result.skipped(), spoilt) << step;
    EXPECT_EQ(result.scale_before(), scale) << step;
    EXPECT_EQ(result.scale_after(), ours.optimizer().loss_scale()) << step;
    EXPECT_EQ(result.reason().empty(), !spoilt) << step;
    if (spoilt)
      expect_near_decided(ours.values(), before, 1e-30);  // the batch norm's statistics, too
  }
  EXPECT_EQ(ours.optimizer().applied_steps(), 7);
  EXPECT_EQ(ours.optimizer().skipped_steps(), 2);
  EXPECT_EQ(ours.optimizer().loss_scale(), host.optimizer().loss_scale());
  expect_near_decided(ours.values(), host.values(), 2e-2);
  EXPECT_NE(heard.texts.find("step skipped: loss 0"), std::string::npos) << heard.texts;
}

TEST_P(UndecidedStep, SplitMastersTrainLikeFloatOnes) {
  const testing_cuda::KernelsAt kernels(place());
  const auto train = [&](bool splits) {
    Options o5 = options();
    o5.opt_level = "O5";
    o5.split_masters = splits;
    UndecidedTraining ours(device(), o5);
    for (int step = 0; step < 6; ++step) ours.step(step, step == 2 ? kInfinity : 1);
    EXPECT_EQ(ours.optimizer().skipped_steps(), 1);
    const at::Tensor master = ours.sgd.param_groups()[0].params()[0];
    EXPECT_EQ(master.storage().nbytes() == 0, splits);
    return ours.values();
  };
  const std::vector<at::Tensor> split = train(true);
  const std::vector<at::Tensor> whole = train(false);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::equal(split[i], whole[i])) << i;
}

TEST_P(UndecidedStep, WhatASkippedStepLeftDoesNotSpoilTheNextOne) {
  const testing_cuda::KernelsAt kernels(place());
  UndecidedTraining ours(device(), options());
  ours.step(0);
  ours.step(1, kInfinity);
  // Nobody calls zero_grad().
  const at::Tensor x = torch::ones({16, 12}).to(device());
  scale_loss(ours.amp->first(x).sum(), ours.optimizer()).backward();
  EXPECT_TRUE(ours.optimizer().step().applied());
  EXPECT_EQ(ours.optimizer().applied_steps(), 2);
}

TEST_P(UndecidedStep, GradientsThatAccumulateOverScopesAddUp) {
  const auto run = [&](const at::Device& where) {
    UndecidedTraining training(where, options());
    for (int step = 0; step < 3; ++step) {
      training.optimizer().zero_grad();
      for (int part = 0; part < 2; ++part) {
        torch::manual_seed(static_cast<std::uint64_t>(10 * step + part));
        const at::Tensor x = torch::randn({16, 12}).to(where);
        scale_loss(training.amp->first(x).square().mean(), training.optimizer()).backward();
      }
      training.optimizer().step();
    }
    return training.values();
  };
  const auto expected = run(at::kCPU);
  const testing_cuda::KernelsAt kernels(place());
  expect_near_decided(run(device()), expected, 2e-2);
}

TEST_P(UndecidedStep, ASchedulesStepsFollowTheStepsThatWereTaken) {
  const testing_cuda::KernelsAt kernels(place());
  UndecidedTraining ours(device(), options());
  torch::optim::StepLR step_lr(ours.sgd, 1, 0.5);
  Schedule schedule(step_lr, ours.optimizer());
  for (int step = 0; step < 6; ++step) {
    ours.step(step, step == 1 || step == 2 ? kInfinity : 1);
    schedule.step();
  }
  // One more while the last decision may still be on its way.
  EXPECT_EQ(ours.optimizer().applied_steps(), 4);
  UndecidedTraining bare(at::kCPU, options());
  torch::optim::StepLR expected(bare.sgd, 1, 0.5);
  for (int step = 0; step < 4; ++step) expected.step();
  EXPECT_DOUBLE_EQ(ours.sgd.param_groups()[0].options().get_lr(),
                   bare.sgd.param_groups()[0].options().get_lr());
}

TEST_P(UndecidedStep, CountersAndScaleTravelInAnArchive) {
  const testing_cuda::KernelsAt kernels(place());
  UndecidedTraining ours(device(), options());
  for (int step = 0; step < 4; ++step) ours.step(step, step == 3 ? kInfinity : 1);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  out << ours.optimizer();
  out.save_to(file);
  UndecidedTraining other(device(), options());
  other.step(9);
  torch::serialize::InputArchive in;
  in.load_from(file);
  in >> other.optimizer();
  EXPECT_EQ(other.optimizer().applied_steps(), 3);
  EXPECT_EQ(other.optimizer().skipped_steps(), 1);
}

TEST_P(UndecidedStep, AStepThatRepeatsASkippedOneMovesNothing) {
  const testing_cuda::KernelsAt kernels(place());
  UndecidedTraining ours(device(), options());
  ours.step(0);
  ours.step(1, kInfinity);
  const auto before = ours.values();
  ours.optimizer().step();  // the gradients that overflowed are nobody's any more
  expect_near_decided(ours.values(), before, 1e-30);
}

TEST_P(UndecidedStep, BlocksThatWereDelayedAtSeveralScalesAddUp) {
  const auto run = [&](const at::Device& where) {
    UndecidedTraining training(where, options());
    for (const bool delayed : {false, true, true, false}) {
      torch::manual_seed(3);
      const at::Tensor x = torch::randn({16, 12}).to(where);
      const at::Tensor loss = training.amp->first(x).square().mean();
      scale_loss(loss, training.optimizer(), {.delay_unscale = delayed}).backward();
      training.optimizer().set_loss_scale(training.optimizer().loss_scale() * 2);
    }
    EXPECT_TRUE(training.optimizer().step().applied());
    return training.values();
  };
  const auto expected = run(at::kCPU);
  const testing_cuda::KernelsAt kernels(place());
  expect_near_decided(run(device()), expected, 2e-2);
}

TEST_P(UndecidedStep, AWeightThatWasWrittenBeforeASkippedStepIsCastAgain) {
  const testing_cuda::KernelsAt kernels(place());
  UndecidedTraining ours(device(), options());
  for (const bool invalidates : {false, true}) {
    if (invalidates && options().opt_level != "O1") break;  // masters notice no raw writes
    ours.step(0);
    torch::manual_seed(4);
    const at::Tensor x = torch::randn({16, 12}).to(device());
    ours.optimizer().zero_grad();
    scale_loss(ours.amp->first(x).sum() * kInfinity, ours.optimizer()).backward();
    {
      const torch::NoGradGuard no_grad;
      at::Tensor weight = ours.net->out->weight;
      (invalidates ? weight.data() : weight).fill_(invalidates ? 0.25 : 0.5);
      if (invalidates) ours.optimizer().invalidate_casts();
    }
    EXPECT_TRUE(ours.optimizer().step().skipped());
    ours.amp->first->eval();
    const at::Tensor features = torch::relu(ours.net->norm(
        ours.net->in->forward(x.to(ours.net->in->weight.scalar_type())).to(at::kFloat)));
    const at::Tensor expected =
        features.sum(1, true) * (invalidates ? 0.25 : 0.5) + ours.net->out->bias.to(at::kFloat);
    EXPECT_LT((ours.amp->first(x) - expected).abs().max().item<float>(), 0.5) << invalidates;
    ours.amp->first->train();
  }
}

TEST_P(UndecidedStep, WhatASkippedStepLeftDoesNotReachAnotherOptimizerOfTheWeights) {
  const testing_cuda::KernelsAt kernels(place());
  Net net = UndecidedTraining::made_on(device());
  optim::FusedSGD first_sgd(net->parameters(), optim::FusedSGDOptions(0.05));
  optim::FusedSGD second_sgd(net->parameters(), optim::FusedSGDOptions(0.05));
  auto [model, optimizers] = initialize(net, std::tie(first_sgd, second_sgd), options());
  auto& [first, second] = optimizers;
  const at::Tensor x = torch::ones({16, 12}).to(device());
  scale_loss(model(x).sum() * kInfinity, first).backward();
  first.step();
  scale_loss(model(x).sum(), second).backward();
  EXPECT_TRUE(second.step().applied());
  EXPECT_EQ(first.skipped_steps(), 1);
}

TEST_P(UndecidedStep, OfSeveralLossesNoneIsBlamed) {
  const testing_cuda::KernelsAt kernels(place());
  Options two = options();
  two.num_losses = 2;
  two.defer_unscale = false;
  UndecidedTraining ours(device(), two);
  const at::Tensor x = torch::ones({16, 12}).to(device());
  scale_loss(ours.amp->first(x).sum() * kInfinity, ours.optimizer(), {.loss_id = 0}).backward();
  scale_loss(ours.amp->first(x).sum(), ours.optimizer(), {.loss_id = 1}).backward();
  EXPECT_EQ(ours.optimizer().step().reason(), "a loss gave a gradient that is not finite");
  EXPECT_EQ(ours.optimizer().loss_scale(0), 512);
  EXPECT_EQ(ours.optimizer().loss_scale(1), 1024);
}

TEST_P(UndecidedStep, TheStopAtTheFloorComesInTimeAndNamesAParameter) {
  const testing_cuda::KernelsAt kernels(place());
  Options at_floor = options();
  at_floor.verbosity = 0;
  at_floor.min_loss_scale = at_floor.init_loss_scale;
  UndecidedTraining ours(device(), at_floor);
  for (int step = 0; step < 49; ++step) ours.step(step, kInfinity);
  try {
    ours.step(49, kInfinity);
    FAIL() << "the fiftieth in a row";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("first in 'in.weight'"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(ours.optimizer().skipped_steps(), 50);
}

TEST_P(UndecidedStep, AStaticScaleSkipsAndStays) {
  const testing_cuda::KernelsAt kernels(place());
  for (const double scale : {100.1, 1.0}) {
    Options fixed = options();
    fixed.loss_scale = scale;
    UndecidedTraining ours(device(), fixed);
    for (int step = 0; step < 4; ++step) {
      if (step == 3) ours.optimizer().zero_grad();
      const StepResult result =
          step == 3 ? ours.optimizer().step() : ours.step(step, step == 1 ? kInfinity : 1);
      EXPECT_EQ(result.skipped(), step == 1);
      EXPECT_EQ(result.empty(), step == 3);
      EXPECT_EQ(result.scale_before(), scale);
      EXPECT_EQ(result.scale_after(), scale);
    }
    EXPECT_EQ(ours.optimizer().applied_steps(), 2);
    EXPECT_EQ(ours.optimizer().skipped_steps(), 1);
    EXPECT_EQ(ours.optimizer().empty_steps(), 1);
  }
}

TEST_P(UndecidedStep, ACheckpointHoldsNoGradientOfASkippedStep) {
  const testing_cuda::KernelsAt kernels(place());
  const std::string path = testing::TempDir() + "mezzo_undecided_checkpoint";
  UndecidedTraining ours(device(), options());
  ours.step(0);
  ours.step(1, kInfinity);
  save_checkpoint(path, ours.amp->first, ours.optimizer());
  UndecidedTraining other(device(), options());
  load_checkpoint(path, other.amp->first, other.optimizer());
  std::remove(path.c_str());
  EXPECT_EQ(other.optimizer().skipped_steps(), 1);
  for (const at::Tensor& master : master_params(other.optimizer())) {
    EXPECT_FALSE(master.grad().defined());
  }
  for (UndecidedTraining* training : {&ours, &other}) training->step(2);
  expect_near_decided(other.values(), ours.values(), 1e-30);
}

TEST_P(UndecidedStep, AnOptimizerThatWasTrainedBeforeAndIsTrainedAfterCountsOn) {
  const auto run = [&](const at::Device& where) {
    Net net = UndecidedTraining::made_on(where);
    optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
    const at::Tensor x = torch::linspace(-1, 1, 16 * 12).reshape({16, 12}).to(where);
    const auto bare_steps = [&] {
      for (int step = 0; step < 5; ++step) {
        adam.zero_grad();
        net(x.to(net->in->weight.scalar_type())).to(at::kFloat).square().mean().backward();
        adam.step();
      }
    };
    bare_steps();
    std::vector<std::int64_t> counts;
    {
      auto [model, optimizer] = initialize(net, adam, options());
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        scale_loss(model(x).square().mean(), optimizer).backward();
        EXPECT_TRUE(optimizer.step().applied());
      }
    }
    net->to(at::kFloat);
    bare_steps();
    optim::settle_step_counts(adam);
    for (const auto& [key, state] : adam.state()) {
      counts.push_back(static_cast<torch::optim::AdamParamState&>(*state).step());
    }
    return counts;
  };
  const auto expected = run(at::kCPU);
  EXPECT_EQ(expected, std::vector<std::int64_t>(6, 15));
  const testing_cuda::KernelsAt kernels(place());
  EXPECT_EQ(run(device()), expected);
}

class GradScalerOnDevice : public testing_cuda::AtPlaces {};
INSTANTIATE_TEST_SUITE_P(Amp, GradScalerOnDevice, testing::Values(Place::kEmulation, Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

TEST_P(GradScalerOnDevice, StepsAFusedOptimizerByTheFlagOfTheDevice) {
  const testing_cuda::KernelsAt kernels(place());
  const at::Tensor weight = torch::ones({4}).to(device()).detach().requires_grad_(true);
  optim::FusedAdam adam(std::vector<at::Tensor>{weight}, optim::FusedAdamOptions(0.125));
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  for (int step = 0; step < 4; ++step) {
    adam.zero_grad();
    const at::Tensor before = weight.detach().cpu().clone();
    scaler.scale((weight * (step == 1 ? kInfinity : 1.0)).sum()).backward();
    const StepResult result = scaler.step(adam);
    scaler.update();
    EXPECT_EQ(result.skipped(), step == 1);
    EXPECT_EQ(result.scale_before(), step < 2 ? 8 : 4);
    EXPECT_EQ(torch::equal(weight.detach().cpu(), before), step == 1);
  }
  EXPECT_EQ(scaler.get_scale(), 8);
}

}  // namespace
}  // namespace mezzo::amp
