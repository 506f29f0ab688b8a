#include "mezzo/grad_scaler.h"

#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

TEST(GradScaler, ScalesUnscalesStepsAndGrows) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  GradScaler scaler({.init_scale = 8, .growth_factor = 4, .growth_interval = 2});
  at::Tensor expected = net->line->weight.detach().clone();
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    scaler.scale(net(row()).sum()).backward();
    if (step == 1) {
      scaler.unscale_(sgd);
      EXPECT_TRUE(torch::allclose(net->line->weight.grad(), row()));
    }
    EXPECT_TRUE(scaler.step(sgd).applied());
    scaler.update();
    expected = expected - 0.125 * row();
    EXPECT_TRUE(torch::allclose(net->line->weight, expected));
  }
  EXPECT_EQ(scaler.state_dict(), (GradScalerState{32, 4, 0.5, 2, 1}));
}

TEST(GradScaler, SkipsAndBacksOffAfterAnOverflow) {
  Line net;
  torch::optim::Adam adam(net->parameters(), 0.125);
  GradScaler scaler({.backoff_factor = 0.25});
  const at::Tensor before = net->line->weight.detach().clone();
  scaler.scale(net(row()).sum() * std::numeric_limits<double>::infinity()).backward();
  const StepResult result = scaler.step(adam);
  EXPECT_TRUE(result.skipped());
  EXPECT_EQ(result.scale_before(), 65536);
  EXPECT_NE(result.reason(), "");
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 16384);
  EXPECT_TRUE(torch::equal(net->line->weight, before));
  EXPECT_TRUE(adam.state().empty());
}

TEST(GradScaler, FusedOptimizersTakeItsFlag) {
  Line net;
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.125));
  Line other;
  torch::optim::AdamW torch_adam(other->parameters(),
                                 torch::optim::AdamWOptions(0.125).weight_decay(0));
  GradScaler scaler({.init_scale = 1000.1});
  GradScaler torch_scaler({.init_scale = 1000.1});
  std::vector<StepResult> results;
  for (const double factor : {1.0, std::numeric_limits<double>::infinity(), 2.0}) {
    adam.zero_grad();
    torch_adam.zero_grad();
    scaler.scale(net(row()).sum() * factor).backward();
    torch_scaler.scale(other(row()).sum() * factor).backward();
    results.push_back(scaler.step(adam));
    EXPECT_EQ(results.back().applied(), torch_scaler.step(torch_adam).applied()) << factor;
    scaler.update();
    torch_scaler.update();
    EXPECT_TRUE(torch::allclose(net->line->weight, other->line->weight)) << factor;
  }
  EXPECT_EQ(scaler.state_dict(), torch_scaler.state_dict());
  EXPECT_TRUE(results[0].applied());
  EXPECT_EQ(results[0].reason(), "");
  EXPECT_TRUE(results[1].skipped()) << "later steps change nothing of it";
  EXPECT_EQ(results[1].reason(), "a gradient is not finite");
  EXPECT_EQ(results[1].scale_before(), 1000.1);
  EXPECT_EQ(results[2].scale_after(), 500.05);
}

TEST(GradScaler, OneOverflowingOptimizerLowersTheScaleButTheOtherSteps) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.125);
  torch::optim::SGD second_sgd(second->parameters(), 0.125);
  GradScaler scaler;
  scaler.scale(first(row()).sum() * std::numeric_limits<double>::infinity() + second(row()).sum())
      .backward();
  EXPECT_TRUE(scaler.step(first_sgd).skipped());
  EXPECT_TRUE(scaler.step(second_sgd).applied());
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(GradScaler, CallsOutOfOrderAreErrors) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  GradScaler scaler;
  EXPECT_THROW(scaler.update(), Error);
  EXPECT_THROW(scaler.unscale_(sgd), Error) << "no gradients";
  scaler.scale(net(row()).sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_THROW(scaler.unscale_(sgd), Error);
  scaler.step(sgd);
  EXPECT_THROW(scaler.step(sgd), Error);
  EXPECT_THROW(scaler.unscale_(sgd), Error);
  scaler.update();
}

TEST(GradScaler, AGradientOfAnUnknownLayoutIsAnErrorThatChangesNothingAndCanBeRepaired) {
  Line net;
  at::Tensor other = torch::ones({2, 2}, torch::requires_grad());
  torch::optim::SGD sgd({net->line->weight, other}, 0.125);
  GradScaler scaler({.init_scale = 128});
  const at::Tensor before = net->line->weight.detach().clone();
  scaler.scale(net(row()).sum() + other.sum()).backward();
  const at::Tensor dense = other.grad();
  other.mutable_grad() = dense.to_sparse_csr();
  EXPECT_THROW(scaler.unscale_(sgd), ConfigError);
  EXPECT_THROW(scaler.step(sgd), ConfigError);
  EXPECT_TRUE(torch::equal(net->line->weight.grad(), 128 * row())) << "still scaled";
  EXPECT_TRUE(torch::equal(net->line->weight, before));
  other.mutable_grad() = dense;
  EXPECT_TRUE(scaler.step(sgd).applied());
  scaler.update();
  EXPECT_TRUE(torch::equal(net->line->weight, before - 0.125 * row()));
  EXPECT_TRUE(torch::equal(other, torch::full({2, 2}, 0.875F)));
}

TEST(GradScaler, RefusesOptionsThatCannotWork) {
  EXPECT_THROW(GradScaler({.init_scale = 0}), ConfigError);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), ConfigError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), ConfigError);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), ConfigError);
  GradScaler scaler;
  EXPECT_THROW(scaler.update(-1), ConfigError);
  EXPECT_THROW(scaler.load_state_dict({-1, 2, 0.5, 2000, 0}), Error);
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScaler, StatesAndNewScales) {
  GradScaler scaler;
  scaler.load_state_dict({512, 4, 0.25, 7, 3});
  EXPECT_EQ(scaler.state_dict(), (GradScalerState{512, 4, 0.25, 7, 3}));
  scaler.update(64);
  EXPECT_EQ(scaler.get_scale(), 64);
}

TEST(GradScaler, DisabledDoesNothing) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  GradScaler scaler({.enabled = false});
  const at::Tensor loss = net(row()).sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_FALSE(scaler.is_enabled());
  loss.backward();
  scaler.unscale_(sgd);
  EXPECT_TRUE(scaler.step(sgd).applied());
  scaler.update();
}

TEST(GradScaler, ScalesListsAndLowPrecisionInFloat) {
  GradScaler scaler;
  const auto scaled = scaler.scale({torch::ones({}, at::kHalf), torch::ones({2})});
  EXPECT_EQ(scaled[0].scalar_type(), at::kFloat);
  EXPECT_EQ(scaled[0].item<double>(), 65536);
  EXPECT_EQ(scaled[1].sizes(), (std::vector<std::int64_t>{2}));
}

TEST(GradScaler, GradientsOfLossesThatWereNotScaledAreAnError) {
  const auto is_told = [](const std::string& call) {
    return testing::ThrowsMessage<Error>(
        testing::AllOf(testing::HasSubstr(call + " would divide"),
                       testing::HasSubstr("scale() was not called since the last update()")));
  };
  for (const bool trained : {false, true}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    Line other;
    torch::optim::SGD other_sgd(other->parameters(), 0.125);
    GradScaler scaler;
    if (trained) {
      scaler.scale(net(row()).sum() + other(row()).sum()).backward();
      EXPECT_TRUE(scaler.step(sgd).applied());
      EXPECT_TRUE(scaler.step(other_sgd).applied()) << "one loss, several optimizers";
      scaler.update();
      sgd.zero_grad();
    }
    const at::Tensor before = net->line->weight.detach().clone();
    net(row()).sum().backward();
    EXPECT_THAT([&] { scaler.unscale_(sgd); }, is_told("unscale_()"));
    EXPECT_THAT([&] { scaler.step(sgd); }, is_told("step()"));
    EXPECT_TRUE(torch::equal(net->line->weight, before));
    EXPECT_TRUE(torch::equal(net->line->weight.grad(), row())) << "not divided";
    sgd.zero_grad();
    for (int batch = 0; batch < 2; ++batch) scaler.scale(net(row()).sum()).backward();
    EXPECT_TRUE(scaler.step(sgd).applied()) << "accumulated";
    scaler.update(512);
    EXPECT_THAT([&] { scaler.step(sgd); }, is_told("step()")) << "they are unscaled already";
  }
}

TEST(GradScaler, LoadingBetweenScaleAndStepKeepsWhatWasScaled) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  GradScaler scaler;
  scaler.scale(net(row()).sum()).backward();
  scaler.load_state_dict(scaler.state_dict());
  GradScaler moved = std::move(scaler);
  EXPECT_TRUE(moved.step(sgd).applied());
}

TEST(Schedule, TakesASchedulerByValue) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 1.0);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  const auto learning_rate = [&] { return sgd.param_groups()[0].options().get_lr(); };
  Schedule schedule(torch::optim::StepLR(sgd, 1, 0.5), optimizer);
  Schedule copy = schedule;
  EXPECT_FALSE(schedule.step()) << "nothing was stepped yet";
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    scale_loss(model(row()).sum(), optimizer).backward();
    optimizer.step();
    EXPECT_TRUE(schedule.step());
  }
  EXPECT_EQ(learning_rate(), 0.5);
  EXPECT_TRUE(copy.step()) << "a copy has the same scheduler";
  EXPECT_EQ(learning_rate(), 0.25);
  Schedule by_metric(torch::optim::ReduceLROnPlateauScheduler(sgd), optimizer);
  EXPECT_FALSE(by_metric.step(1.0F));
}

TEST(Schedule, AdvancesOnlyAfterAppliedSteps) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 1.0);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  torch::optim::StepLR step_lr(optimizer.inner(), 1, 0.5);
  Schedule schedule(step_lr, optimizer);
  const auto step = [&, &model = model, &optimizer = optimizer](double factor) {
    optimizer.zero_grad();
    scale_loss(model(row()).sum() * factor, optimizer).backward();
    optimizer.step();
    return schedule.step();
  };
  EXPECT_FALSE(schedule.step()) << "nothing was stepped yet";
  EXPECT_TRUE(step(1));
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 1.0);
  EXPECT_TRUE(step(1));
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.5)
      << "StepLR counts its own first step as none";
}

TEST(Schedule, LoadingIsNoStep) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 1.0);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  torch::optim::StepLR step_lr(optimizer.inner(), 1, 0.5);
  Schedule schedule(step_lr, optimizer);
  const auto step = [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    scale_loss(model(row()).sum(), optimizer).backward();
    optimizer.step();
  };
  std::stringstream file;
  torch::save(optimizer, file);
  step();
  EXPECT_TRUE(schedule.step());
  torch::load(optimizer, file);
  EXPECT_FALSE(schedule.step()) << "the counts are others, but nothing was stepped";
  step();
  EXPECT_TRUE(schedule.step()) << "though there are as many applied steps as before";
}

}  // namespace
}  // namespace mezzo::amp
