// Gradients that are not finite where no loss is scaled: the levels of bfloat16 look at them by
// default, and skip the step.
#include <gmock/gmock.h>

#include <memory>

#include "amp/training.h"
#include "mezzo/ema.h"
#include "mezzo/optim.h"
#include "mezzo/schedule.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

enum class Kind { kTorch, kFused, kClipping };

std::unique_ptr<torch::optim::Optimizer> adam_of(Kind kind, std::vector<at::Tensor> parameters) {
  if (kind == Kind::kTorch) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(0.125));
  }
  auto options = optim::FusedAdamOptions(0.125);
  if (kind == Kind::kClipping) options.max_grad_norm(1);
  return std::make_unique<optim::FusedAdam>(std::move(parameters), options);
}

/// Zero, with a gradient by the first element that is an infinity, or NaN if `factor` is zero.
at::Tensor spoiler(const at::Tensor& weight, double factor) {
  const at::Tensor element = weight.flatten()[0].to(at::kFloat);
  return (element - element.detach()).sqrt() * factor;
}

struct SpoiltTraining {
  SpoiltTraining(Kind kind, const Options& options) : net(seeded()) {
    adam = adam_of(kind, net->parameters());
    handles.emplace(initialize(net, *adam, options));
  }
  static TinyNet seeded() {
    torch::manual_seed(3);
    return {};
  }
  Optimizer& optimizer() { return handles->second; }
  at::Tensor loss() { return loss_of(handles->first); }
  at::Tensor spoilt_loss(double factor = 1) { return loss() + spoiler(net->first->weight, factor); }
  StepResult step(const at::Tensor& loss) {
    optimizer().zero_grad();
    scale_loss(loss, optimizer()).backward();
    return optimizer().step();
  }
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> all = values_of(*net);
    for (const at::Tensor& each : master_params(optimizer())) all.push_back(each.detach().clone());
    return all;
  }

  TinyNet net;
  std::unique_ptr<torch::optim::Optimizer> adam;
  std::optional<std::pair<Model<TinyNet>, Optimizer>> handles;
};

struct FiniteByDefault : testing::TestWithParam<std::tuple<std::string, Kind, bool>> {
  static Kind kind() { return std::get<1>(GetParam()); }
  static Options options() {
    Options result = at_level(std::get<0>(GetParam()));
    result.defer_unscale = std::get<2>(GetParam());
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, FiniteByDefault,
                         testing::Combine(testing::Values("O4", "O5"),
                                          testing::Values(Kind::kTorch, Kind::kFused,
                                                          Kind::kClipping),
                                          testing::Bool()));

TEST_P(FiniteByDefault, OneInfiniteElementSkipsTheStepAndMovesNothing) {
  SpoiltTraining clean(kind(), options());
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(clean.step(clean.loss()).applied());
  for (const double factor : {1.0, -1.0, 0.0}) {
    Options tells = options();
    tells.verbosity = 1;
    SpoiltTraining spoilt(kind(), tells);
    const Listener listener;
    torch::optim::StepLR step_lr(*spoilt.adam, 2, 1.0);
    Schedule schedule(step_lr, spoilt.optimizer());
    Ema ema(spoilt.handles->first, 0.5);
    for (int step = 0; step < 4; ++step) {
      const bool spoils = step == 2;
      const StepResult result = spoilt.step(spoils ? spoilt.spoilt_loss(factor) : spoilt.loss());
      EXPECT_EQ(result.skipped(), spoils);
      EXPECT_EQ(schedule.step(), !spoils);
      EXPECT_EQ(ema.update(), !spoils);
      if (!spoils) continue;
      EXPECT_EQ(result.reason(),
                "loss 0 gave a gradient that is not finite, first in 'first.weight'");
      EXPECT_EQ(result.scale_before(), 1);
      EXPECT_EQ(result.scale_after(), 1);
    }
    EXPECT_TRUE(same_values(spoilt.values(), clean.values())) << "moments, counters and statistics";
    EXPECT_EQ(spoilt.optimizer().applied_steps(), 3);
    EXPECT_EQ(spoilt.optimizer().skipped_steps(), 1);
    EXPECT_EQ(spoilt.optimizer().loss_scale(), 1);
    EXPECT_EQ(listener.count("step skipped: loss 0 gave a gradient that is not finite, first in "
                             "'first.weight'; the loss has no scale that could fall\n"),
              1)
        << listener.heard;
  }
}

TEST_P(FiniteByDefault, WithoutTheCheckItReachesTheWeights) {
  Options unchecked = options();
  unchecked.check_finite = false;
  SpoiltTraining training(kind(), unchecked);
  EXPECT_TRUE(training.step(training.spoilt_loss()).applied());
  EXPECT_FALSE(training.net->first->weight.isfinite().all().item<bool>());
}

TEST_P(FiniteByDefault, AnInfinityInAnyAccumulatedBatchSkipsTheStep) {
  for (const int spoilt_batch : {0, 1, 2}) {
    for (const bool delays : {false, true}) {
      SpoiltTraining training(kind(), options());
      const std::vector<at::Tensor> before = training.values();
      for (int batch = 0; batch < 3; ++batch) {
        scale_loss(batch == spoilt_batch ? training.spoilt_loss() : training.loss(),
                   training.optimizer(), {.delay_unscale = delays && batch < 2})
            .backward();
      }
      EXPECT_TRUE(training.optimizer().step().skipped()) << spoilt_batch << delays;
      EXPECT_TRUE(same_values(training.values(), before)) << spoilt_batch << delays;
      EXPECT_TRUE(training.step(training.loss()).applied());
    }
  }
}

TEST_P(FiniteByDefault, ADelayedCheckTakesTheStepRegardless) {
  SpoiltTraining training(kind(), options());
  scale_loss(training.spoilt_loss(), training.optimizer(), {.delay_overflow_check = true})
      .backward();
  EXPECT_TRUE(training.optimizer().step().applied());
}

TEST_P(FiniteByDefault, ManySkippedStepsInARowAreNoError) {
  SpoiltTraining training(kind(), options());
  for (int step = 0; step < 60; ++step)
    EXPECT_TRUE(training.step(training.spoilt_loss()).skipped()) << step;
  EXPECT_TRUE(training.step(training.loss()).applied());
}

TEST(FiniteByDefault, IsTheAnswerOfTheLevels) {
  for (const std::string& level : kLevels) {
    for (const bool is_static : {false, true}) {
      Options options = at_level(level);
      if (is_static) options.loss_scale = 1.0;
      SpoiltTraining training(Kind::kTorch, options);
      if (level == "O3") training.adam->param_groups();
      EXPECT_EQ(training.step(training.spoilt_loss()).skipped(), level != "O0" && level != "O3")
          << level << is_static;
    }
  }
}

TEST(FiniteByDefault, GradientsOfAPlainBackwardAreCheckedByTheStep) {
  for (const std::string level : {"O0", "O1", "O3", "O4"}) {
    for (const Kind kind : {Kind::kTorch, Kind::kFused, Kind::kClipping}) {
      if (level == "O3" && kind != Kind::kTorch) continue;
      Options options = at_level(level);
      if (level == "O0" || level == "O3") options.check_finite = true;
      SpoiltTraining training(kind, options);
      const double scale = training.optimizer().loss_scale();
      training.loss().backward();
      EXPECT_TRUE(training.optimizer().step().applied()) << level;
      const std::vector<at::Tensor> before = training.values();
      training.optimizer().zero_grad();
      training.spoilt_loss().backward();
      const StepResult result = training.optimizer().step();
      EXPECT_TRUE(result.skipped()) << level;
      EXPECT_EQ(result.reason(), "a gradient is not finite, first in 'first.weight'");
      EXPECT_TRUE(same_values(training.values(), before)) << level;
      EXPECT_EQ(training.optimizer().loss_scale(), scale) << "the loss was not scaled";
    }
  }
}

TEST(FiniteByDefault, OneVerdictHoldsForAllOptimizersOfALoss) {
  for (const std::string level : {"O4", "O5"}) {
    TinyNet net;
    const auto one = adam_of(Kind::kTorch, net->first->parameters());
    const auto other = adam_of(Kind::kFused, net->second->parameters());
    Options options = at_level(level);
    options.num_losses = 2;
    auto [models, optimizers] = initialize(std::tie(net), std::tie(*one, *other), options);
    auto& model = std::get<0>(models);
    auto& [first, second] = optimizers;
    scale_loss(loss_of(model) + spoiler(net->first->weight, 1), optimizers).backward();
    EXPECT_TRUE(first.step().skipped()) << level;
    EXPECT_TRUE(second.step().skipped()) << level;
    scale_loss(net->first->weight.to(at::kFloat).sum() + spoiler(net->first->weight, 1), first,
               {.loss_id = 1})
        .backward();
    scale_loss(net->second->weight.to(at::kFloat).sum(), second).backward();
    EXPECT_THAT(first.step().reason(), HasSubstr("loss 1")) << level;
    EXPECT_TRUE(second.step().applied()) << level;
  }
}

TEST(FiniteByDefault, AClosureThatOverflowsIsEvaluatedOnceSinceNoScaleFalls) {
  for (const std::string level : {"O4", "O5"}) {
    for (const bool repeats : {false, true}) {
      for (const bool plain : {false, true}) {
        if (plain && level == "O5") continue;
        Line net;
        std::unique_ptr<torch::optim::Optimizer> inner;
        if (repeats) {
          inner = std::make_unique<torch::optim::LBFGS>(net->parameters(), 0.5);
        } else {
          inner = std::make_unique<torch::optim::Adam>(net->parameters());
        }
        auto [model, optimizer] = initialize(net, *inner, at_level(level));
        const std::vector<at::Tensor> before = values_of(*net);
        int evaluations = 0;
        const StepResult result = optimizer.step([&, &model = model, &optimizer = optimizer] {
          optimizer.zero_grad();
          ++evaluations;
          at::Tensor loss = model(row()).sum().square() + spoiler(net->line->weight, 1);
          plain ? loss.backward() : scale_loss(loss, optimizer).backward();
          return loss;
        });
        EXPECT_TRUE(result.skipped()) << level << repeats << plain;
        EXPECT_EQ(evaluations, 1) << level << repeats << plain;
        EXPECT_TRUE(same_values(values_of(*net), before)) << level << repeats << plain;
      }
    }
  }
}

TEST(FiniteByDefault, SparseAndDoubleGradientsAreLookedAt) {
  for (const bool sparse : {false, true}) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 3).sparse(sparse));
    if (!sparse) net->to(at::kDouble);
    torch::optim::SGD sgd(net->parameters(), 0.5);
    auto [model, optimizer] = initialize(net, sgd, at_level("O4"));
    const std::vector<at::Tensor> before = values_of(*net);
    const at::Tensor picked = model(torch::tensor({1, 3}));
    scale_loss((picked - picked.detach()).sqrt().sum().to(at::kFloat), optimizer).backward();
    EXPECT_TRUE(optimizer.step().skipped()) << sparse;
    EXPECT_TRUE(same_values(values_of(*net), before)) << sparse;
    // Doubles that float cannot hold are finite.
    if (sparse) continue;
    scale_loss(model(torch::tensor({1, 3})).sum() * 1e100, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
  }
}

}  // namespace
}  // namespace mezzo::amp
