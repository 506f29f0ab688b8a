// init_trainer, scale_loss, unscale, and the state machine of the scale.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "gluon/judged.h"
#include "gluon/trainer_scale.h"

namespace mezzo::gluon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One weight of one element: its gradient is what the loss is multiplied by.
struct One {
  One() { params.insert("w", weight); }
  at::Tensor loss(double factor) const { return weight.mul(factor).sum(); }
  at::Tensor weight = torch::ones({1}, torch::requires_grad());
  torch::OrderedDict<std::string, at::Tensor> params;
};

/// A step with a gradient of that size.
void step_by(One& one, Trainer& trainer, double factor) {
  trainer.zero_grad();
  scale_loss(one.loss(factor), trainer).backward();
  trainer.step(1);
}

TEST(Scale, TracesUnderMxnetsTimingAreMxnets) {
  for (const std::string name : {"scale_rare", "scale_often", "scale_falls", "scale_grows"}) {
    const Messages messages;
    const std::vector<double>&overflows = judged(name + ".overflows"),
          &changes = judged(name + ".changes");
    TrainerScaler scaler(
        {.timing = ScaleTiming::kMxnet, .window = static_cast<int>(judged(name + ".setting")[0])});
    std::size_t next_overflow = 0, next_change = 0;
    double expected = 0;
    for (int step = 0; step < judged(name + ".setting")[1]; ++step) {
      if (next_change < changes.size() && changes[next_change] == step) {
        expected = changes[next_change + 1];
        next_change += 2;
      }
      ASSERT_NEAR(scaler.scale(), expected, 1e-8 * expected) << name << " at " << step;
      const bool overflow = next_overflow < overflows.size() && overflows[next_overflow] == step;
      if (overflow) ++next_overflow;
      scaler.advance(overflow);
    }
    EXPECT_EQ(next_change, changes.size());
  }
}

TEST(Scale, MovesAtOnceByDefault) {
  const auto handle = init();
  One one;
  Trainer trainer(one.params, "sgd");
  init_trainer(trainer, {.window = 2});
  const Messages messages;
  std::vector<double> used;
  for (const double factor : {kInf, 1.0, 1.0, 1.0, kInf, 1.0}) {
    used.push_back(trainer.loss_scale());
    step_by(one, trainer, factor);
    EXPECT_EQ(trainer.last_step_skipped(), factor == kInf);
  }
  EXPECT_THAT(used, ElementsAre(65536, 32768, 32768, 65536, 65536, 32768));
  EXPECT_THAT(messages.all, ElementsAre("AMP: decreasing loss scale to 32768.000000",
                                        "AMP: increasing loss scale to 65536.000000",
                                        "AMP: decreasing loss scale to 32768.000000"));
}

TEST(Scale, LagsAStepOnRequest) {
  const auto handle = init();
  One one;
  Trainer trainer(one.params, "sgd");
  init_trainer(trainer, {.timing = ScaleTiming::kMxnet});
  const Messages messages;
  std::vector<double> used;
  // The largest scale that fits is 20000: MXNet skips three times and settles a factor too low.
  for (int step = 0; step < 7; ++step) {
    used.push_back(trainer.loss_scale());
    step_by(one, trainer, trainer.loss_scale() > 20000 ? kNan : 1.0);
  }
  EXPECT_THAT(used, ElementsAre(65536, 65536, 32768, 16384, 8192, 8192, 8192));
}

TEST(Scale, ASkipMovesNothing) {
  const auto handle = init();
  const Messages messages;
  One one;
  const auto schedule = std::make_shared<FactorScheduler>(
      FactorSchedulerOptions{.step = 1, .factor = 0.5, .base_lr = 0.25});
  Trainer trainer(one.params, "adam", {}, {.lr_scheduler = schedule});
  One twin;
  Trainer clean(twin.params, "adam", {}, {.lr_scheduler = schedule});
  init_trainer(trainer);
  init_trainer(clean);
  for (const double factor : {1.0, kInf, 2.0, kNan, 3.0}) {
    const at::Tensor before = one.weight.detach().clone();
    step_by(one, trainer, factor);
    if (std::isfinite(factor)) {
      step_by(twin, clean, factor);
    } else {
      EXPECT_TRUE(trainer.last_step_skipped());
      EXPECT_TRUE(torch::equal(one.weight.detach(), before));
      // The gradient is still fresh: no complaint, and no movement by the next step.
      trainer.step(1);
      EXPECT_TRUE(trainer.last_step_skipped());
    }
    EXPECT_EQ(trainer.learning_rate(), clean.learning_rate());
  }
  EXPECT_TRUE(torch::allclose(one.weight, twin.weight));
}

TEST(Scale, TheStepDividesByScaleAndBatch) {
  const auto handle = init();
  One one;
  Trainer trainer(one.params, "sgd", {{"learning_rate", 1}, {"rescale_grad", 0.5}});
  init_trainer(trainer, {.init_scale = 1024});
  trainer.zero_grad();
  // Two losses before one step add up.
  scale_loss(one.loss(2), trainer).backward();
  const ScaledLoss second = scale_loss(one.loss(4), trainer);
  EXPECT_EQ(second.value().item<double>(), 4096);
  EXPECT_EQ((*second).item<double>(), 4096);
  scale_loss(one.loss(4), trainer).backward();
  EXPECT_EQ(one.weight.grad().item<double>(), 6 * 1024);
  trainer.step(3);
  EXPECT_DOUBLE_EQ(one.weight.item<double>(), 1 - 6 * 0.5 / 3);
  // A plain backward pass is not scaled, and not divided.
  trainer.zero_grad();
  one.loss(3).backward();
  trainer.step(1);
  EXPECT_DOUBLE_EQ(one.weight.item<double>(), 0 - 3 * 0.5);
}

TEST(Scale, UnscalingIsForClippingAndHappensOnce) {
  const auto handle = init();
  One one;
  Trainer trainer(one.params, "sgd", {{"learning_rate", 1}});
  init_trainer(trainer);
  trainer.zero_grad();
  scale_loss(one.loss(8), trainer).backward();
  trainer.allreduce_grads();
  unscale(trainer);
  unscale(trainer);
  EXPECT_EQ(one.weight.grad().item<double>(), 8);
  torch::nn::utils::clip_grad_norm_(one.weight, 2.0);
  trainer.update(2);
  EXPECT_NEAR(one.weight.item<double>(), 0, 1e-5);
  // Infinities stay, and the update still sees them.
  const Messages messages;
  trainer.zero_grad();
  scale_loss(one.loss(kInf), trainer).backward();
  unscale(trainer);
  trainer.update(1);
  EXPECT_TRUE(trainer.last_step_skipped());
}

TEST(Scale, TrainersHaveAScaleEach) {
  const auto handle = init();
  const Messages messages;
  One a, b;
  Trainer first(a.params, "sgd"), second(b.params, "sgd");
  init_trainer(first);
  init_trainer(second);
  step_by(a, first, kInf);
  step_by(b, second, 1);
  EXPECT_EQ(first.loss_scale(), 32768);
  EXPECT_EQ(second.loss_scale(), 65536);
}

TEST(Scale, LossesMayBeListsAndOnesPerSample) {
  const auto handle = init();
  One a;
  Trainer trainer(a.params, "sgd", {{"learning_rate", 1}});
  init_trainer(trainer, {.loss_scale = 4});
  ScaledLoss scaled = scale_loss({a.loss(1), a.weight.expand({3}).mul(2)}, trainer);
  EXPECT_EQ(scaled.values().size(), 2);
  EXPECT_THROW((void)scaled.value(), Error);
  scaled.backward();
  EXPECT_EQ(a.weight.grad().item<double>(), 4 * 7);
  const Messages messages;
  trainer.step(7);
  EXPECT_DOUBLE_EQ(a.weight.item<double>(), 0);
  step_by(a, trainer, kInf);
  EXPECT_TRUE(trainer.last_step_skipped());
  EXPECT_EQ(trainer.loss_scale(), 4);
  EXPECT_THAT(messages.all, testing::IsEmpty());
}

TEST(Scale, OutputOperatorsTakeTheOnlyTrainersScale) {
  const auto handle = init();
  One one, other;
  Trainer trainer(one.params, "sgd", {{"learning_rate", 1}});
  const auto output = [](const One& of) {
    return linear_regression_output(of.weight, torch::zeros({1}));
  };
  init_trainer(trainer, {.init_scale = 256});
  scale_loss(output(one), trainer).backward();
  EXPECT_EQ(one.weight.grad().item<double>(), 256);
  trainer.step(2);
  EXPECT_DOUBLE_EQ(one.weight.item<double>(), 0.5);
  // Without scale_loss as well.
  trainer.zero_grad();
  output(one).backward();
  trainer.step(1);
  EXPECT_DOUBLE_EQ(one.weight.item<double>(), 0);
  {
    Trainer second(other.params, "sgd");
    init_trainer(second);
    EXPECT_THAT([&] { output(other); }, ThrowsMessage<ConfigError>(HasSubstr("2 trainers")));
    const torch::NoGradGuard no_grad;
    EXPECT_NO_THROW(output(other));
  }
  EXPECT_NO_THROW(output(other));
}

TEST(Scale, OutputOperatorsAreAnErrorWithTwoTrainersWhateverTheirData) {
  const auto handle = init();
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  One one, other;
  Trainer first(one.params, "sgd"), second(other.params, "sgd");
  const at::Tensor raw = torch::ones({2, 3}), label = torch::zeros({2, 3});
  const auto outputs = [&](const at::Tensor& data) {
    return std::vector<std::function<at::Tensor()>>{
        [=] { return softmax_output(data, label); },
        [=] { return linear_regression_output(data, label); },
        [=] { return logistic_regression_output(data, label); },
        [=] { return mae_regression_output(data, label); }};
  };
  for (const auto& output : outputs(raw * other.weight)) EXPECT_NO_THROW(output());
  init_trainer(first);
  // The second trainer's step would not divide by the first one's scale.
  for (const auto& output : outputs(raw * other.weight))
    EXPECT_THAT([&] { output(); }, message("would not divide"));
  for (const auto& output : outputs(raw * one.weight)) EXPECT_NO_THROW(output());
  first.zero_grad();
  init_trainer(second);
  for (const at::Tensor& data : {raw, raw * one.weight, raw * other.weight}) {
    for (const auto& output : outputs(data)) {
      EXPECT_THAT([&] { output(); }, message("2 trainers"));
      EXPECT_THAT([&] { (void)scale_loss(output(), first); }, message("2 trainers"));
      const torch::NoGradGuard no_grad;
      EXPECT_NO_THROW(output());
    }
  }
  EXPECT_FALSE(one.weight.grad().defined());
}

TEST(Scale, MisuseIsAnErrorThatSaysWhatToCall) {
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  One one;
  Trainer trainer(one.params, "sgd");
  EXPECT_THAT([&] { init_trainer(trainer); }, message("gluon::init()"));
  EXPECT_THAT([&] { (void)scale_loss(one.loss(1), trainer); }, message("init_trainer"));
  EXPECT_THAT([&] { unscale(trainer); }, message("init_trainer"));
  EXPECT_EQ(trainer.loss_scale(), 1);
  {
    const auto handle = init();
    init_trainer(trainer);
    EXPECT_THAT([&] { init_trainer(trainer); }, message("already"));
    Trainer others(one.params, "sgd");
    EXPECT_THAT([&] { init_trainer(others, {.init_scale = 0}); }, message("init_scale is 0"));
    EXPECT_THAT([&] { init_trainer(others, {.init_scale = 8, .max_scale = 4}); },
                message("max_scale"));
    EXPECT_THAT([&] { init_trainer(others, {.window = 0}); }, message("window is 0"));
    EXPECT_THAT([&] { (void)scale_loss(one.loss(1).detach(), trainer); },
                message("does not record"));
    EXPECT_THAT([&] { (void)scale_loss(std::vector<at::Tensor>{}, trainer); },
                message("no losses"));
    EXPECT_THAT([&] { (void)scale_loss(at::Tensor(), trainer); }, message("undefined"));
  }
  // It keeps its scale when the handle is gone.
  step_by(one, trainer, 1);
  EXPECT_EQ(trainer.loss_scale(), 65536);
}

TEST(Scale, FiftySkipsAtTheFloorAreAnErrorUnlessTimedAsMxnet) {
  const auto handle = init();
  const Messages messages;
  One one, other;
  Trainer trainer(one.params, "sgd"), lagging(other.params, "sgd");
  init_trainer(trainer);
  init_trainer(lagging, {.timing = ScaleTiming::kMxnet});
  int steps = 0;
  EXPECT_THAT(
      [&] {
        for (; steps < 200; ++steps) step_by(one, trainer, kNan);
      },
      ThrowsMessage<Error>(HasSubstr("gradient of 'w'")));
  EXPECT_EQ(steps, 30 + 50 - 1);
  EXPECT_EQ(trainer.loss_scale(), 0x1p-14);
  for (int i = 0; i < 200; ++i) step_by(other, lagging, kNan);
  EXPECT_EQ(lagging.loss_scale(), 0x1p-126);
}

TEST(Scale, StatesCarryScaleCounterAndLag) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "scaled.states").string();
  const auto handle = init();
  const Messages messages;
  for (const ScaleTiming timing : {ScaleTiming::kImmediate, ScaleTiming::kMxnet}) {
    const TrainerScale options{.timing = timing, .window = 3};
    One one, before, after;
    Trainer trainer(one.params, "sgd");
    init_trainer(trainer, options);
    for (const double factor : {1.0, 1.0, 1.0, 1.0, kInf}) step_by(one, trainer, factor);
    trainer.save_states(path);
    // Loaded before and after init_trainer.
    Trainer early(before.params, "sgd"), late(after.params, "sgd");
    early.load_states(path);
    init_trainer(early, options);
    init_trainer(late, options);
    late.load_states(path);
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(early.loss_scale(), trainer.loss_scale());
      EXPECT_EQ(late.loss_scale(), trainer.loss_scale());
      step_by(one, trainer, 1);
      step_by(before, early, 1);
      step_by(after, late, 1);
    }
  }
}

TEST(Scale, AnOverflowOnTheSecondReplicaSkips) {
  const auto handle = init();
  const Messages messages;
  One left, right;
  Trainer trainer({left.params, right.params}, "sgd", {{"learning_rate", 1}});
  init_trainer(trainer, {.init_scale = 8});
  scale_loss({left.loss(1), right.loss(kInf)}, trainer).backward();
  trainer.step(1);
  EXPECT_TRUE(trainer.last_step_skipped());
  trainer.zero_grad();
  scale_loss({left.loss(1), right.loss(2)}, trainer).backward();
  trainer.step(1);
  EXPECT_DOUBLE_EQ(left.weight.item<double>(), -2);
  EXPECT_DOUBLE_EQ(right.weight.item<double>(), -2);
}

}  // namespace
}  // namespace mezzo::gluon
