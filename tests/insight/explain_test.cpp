// explain_overflow() beside the gallery: training is left alone to the bit, scales, losses, ranks
// and text are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "insight/gallery.h"
#include "insight/noisy_training.h"
#include "mezzo/recompute.h"

namespace mezzo::insight {
namespace {

TEST(Explain, LeavesTrainingAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    for (const bool fused : {false, true}) {
      int explained = 0;
      const auto without = trained_noisily(level, fused, {});
      const auto with = trained_noisily(level, fused, [&](const NoisyStep& step) {
        // Before a good step, and after each that was skipped.
        if (!step.skipped && step.number != 4) return;
        if (step.skipped && !*step.skipped) return;
        const Explanation why = explain_overflow(step.model, step.optimizer, step.loss);
        if (!step.skipped) return;
        EXPECT_TRUE(why.reproduced) << level << " step " << step.number;
        ++explained;
      });
      EXPECT_GT(explained, 0) << level;
      ASSERT_EQ(with.size(), without.size());
      for (std::size_t i = 0; i < with.size(); ++i)
        EXPECT_TRUE(with[i].equal(without[i])) << level << " tensor " << i;
    }
  }
}

TEST(Explain, AStepThatPassesIsNotReproduced) {
  Scene scene({.name = "none"});
  ASSERT_TRUE(scene.step().applied());
  const Explanation why = scene.explain();
  EXPECT_FALSE(why.reproduced);
  EXPECT_FALSE(why.first.has_value());
  EXPECT_EQ(why.evaluations, 1);
  EXPECT_THAT(why.to_text(), testing::HasSubstr("nothing to explain"));
}

TEST(Explain, TheScaleIsThatOfTheFailedStep) {
  Sandwich net{Step()};
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .init_loss_scale = 1048576, .verbosity = 0});
  const at::Tensor x = torch::ones({3, 4});
  const auto loss = [&, &model = model] { return model(x).sum(); };
  amp::scale_loss(loss(), optimizer).backward();
  EXPECT_EQ(explain_overflow(model, optimizer, loss).loss_scale, 1048576) << "before the step";
  ASSERT_TRUE(optimizer.step().skipped());
  ASSERT_EQ(optimizer.loss_scale(), 524288);
  const Explanation why = explain_overflow(model, optimizer, loss);
  EXPECT_EQ(why.loss_scale, 1048576);
  ASSERT_TRUE(why.advice.front().loss_scale.has_value());
  // The bias adds up three rows, and half holds 65504.
  EXPECT_EQ(*why.advice.front().loss_scale, 16384);
}

TEST(Explain, TheDropoutOfTheFailedStepIsUsed) {
  torch::manual_seed(5);
  auto drop = std::make_shared<torch::nn::DropoutImpl>(0.5);
  std::vector<at::Tensor> seen;
  Sandwich net([&](const at::Tensor& x) {
    seen.push_back(drop->forward(torch::ones_like(x)).detach());
    return x / 0.0 * seen.back();
  });
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  const auto loss = [&, &model = model] { return model(torch::ones({3, 4})).sum(); };
  amp::scale_loss(loss(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  const at::Tensor next = torch::rand({1});  // random numbers between step and explanation
  explain_overflow(model, optimizer, loss);
  ASSERT_GE(seen.size(), 2U);
  for (const at::Tensor& mask : seen) EXPECT_TRUE(mask.equal(seen.front()));
}

TEST(Explain, InfinitiesThatReachNoGradientAreNotReported) {
  // The exponential overflows, and nobody uses it; what fails is the logarithm.
  Fault fault{.name = "unused", .input = 0};
  fault.middle = [](const at::Tensor& x) {
    const at::Tensor unused = (x + 100).exp() * 1e30;
    (void)unused;
    const at::Tensor masked = torch::where(x < 0, (x + 1e3).detach().exp(), x);
    return masked.log();
  };
  Scene scene(fault);
  ASSERT_TRUE(scene.step().skipped());
  const Explanation why = scene.explain();
  ASSERT_TRUE(why.first.has_value());
  EXPECT_EQ(why.first->name, "log") << why.to_text();
  EXPECT_EQ(why.cause, Cause::kLogOfZero);
}

TEST(Explain, RangesAreThoseOfTheOperatorsInputs) {
  Fault fault{.name = "ranges", .input = 300};
  fault.middle = [](const at::Tensor& x) {
    const at::Tensor factors = torch::arange(8).to(x.dtype());
    return x * factors * x / 1e4;
  };
  Scene scene(fault);
  ASSERT_TRUE(scene.step().skipped());
  const Explanation why = scene.explain();
  ASSERT_TRUE(why.first.has_value());
  ASSERT_EQ(why.first->inputs.size(), 2U);
  const TensorRange& product = why.first->inputs[0];
  EXPECT_EQ(product.dtype, at::kHalf);
  EXPECT_EQ(product.sizes, (std::vector<std::int64_t>{3, 8}));
  EXPECT_EQ(product.min, 0);
  EXPECT_EQ(product.max, 2100);
  EXPECT_EQ(product.smallest, 300);
  EXPECT_EQ(product.zeros, 3);
  EXPECT_EQ(product.largest_at, (std::vector<std::int64_t>{0, 7}));
  EXPECT_EQ(why.first->output.infs, 21);
  EXPECT_EQ(why.first->output.not_finite_at, (std::vector<std::int64_t>{0, 1}));
}

TEST(Explain, OneOfSeveralLossesAndNetworks) {
  Sandwich first{Step()}, second([](const at::Tensor&x) { return x * x / 1000.0; });
  torch::optim::SGD one(first->parameters(), 0.01), two(second->parameters(), 0.01);
  auto [models, optimizers] =
      amp::initialize(std::tie(first, second), std::tie(one, two),
                      {.opt_level = "O1", .num_losses = 3, .init_loss_scale = 256, .verbosity = 0});
  auto& [model, other] = models;
  auto& [optimizer, failing] = optimizers;
  const at::Tensor x = torch::full({3, 4}, 300.0);
  const auto loss = [&, &other = other] { return other(x).sum(); };
  amp::scale_loss(loss(), failing, {.loss_id = 2}).backward();
  ASSERT_TRUE(failing.step().skipped());
  const Explanation why = explain_overflow(models, optimizers, loss, 2);
  ASSERT_TRUE(why.first.has_value());
  EXPECT_EQ(why.first->name, "mul");
  EXPECT_EQ(why.first->module, "between stem of network 1 and head of network 1");
  EXPECT_TRUE(explain_overflow(other, failing, loss, 2).reproduced);
}

TEST(Explain, ARecomputedPartIsLookedInto) {
  Sandwich net([](const at::Tensor& x) {
    return mezzo::recompute([](const at::Tensor& y) { return y.log() * y.sqrt(); }, x);
  });
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  const auto loss = [&, &model = model] { return model(torch::zeros({3, 4})).sum(); };
  amp::scale_loss(loss(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  const Explanation why = explain_overflow(model, optimizer, loss);
  ASSERT_TRUE(why.first.has_value()) << why.to_text();
  EXPECT_EQ(why.first->name, "log");
  EXPECT_EQ(why.cause, Cause::kLogOfZero);
}

TEST(Explain, AGradientPenaltyFailsInItsFirstOperator) {
  Sandwich net([](const at::Tensor& x) { return x * 0; });
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .loss_scale = 16, .verbosity = 0});
  const auto loss = [&, &model = model] {
    const at::Tensor x = torch::ones({3, 4}).requires_grad_();
    const at::Tensor y = model(x).sum();
    const at::Tensor gradient = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    return y + (gradient * gradient).sum().sqrt();
  };
  amp::scale_loss(loss(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  const Explanation why = explain_overflow(model, optimizer, loss);
  ASSERT_TRUE(why.first.has_value()) << why.to_text();
  EXPECT_EQ(why.first->name, "sqrt") << why.to_text();
  EXPECT_EQ(why.first->module, "after stem") << why.to_text();
  EXPECT_TRUE(why.first->backward);
  EXPECT_EQ(why.cause, Cause::kDivisionByZero);
}

TEST(Explain, APenaltysOperatorsHaveAModuleAtEveryLevel) {
  struct Penalty {
    const char* name;
    std::function<at::Tensor(const at::Tensor& gradient)> of;
    const char* op;
  };
  const std::vector<Penalty> penalties{
      {"root", [](const at::Tensor& g) { return g.pow(2).sum().sqrt(); }, "sqrt"},
      {"rows", [](const at::Tensor& g) { return ((g * g).sum(1).sqrt() - 1).pow(2).mean(); },
       "sqrt"},
      {"fraction", [](const at::Tensor& g) { return g.abs().sum().reciprocal(); }, "reciprocal"},
      {"logarithm", [](const at::Tensor& g) { return g.abs().sum().log(); }, "log"}};
  for (const char* level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    for (const Penalty& penalty : penalties) {
      for (const bool of_weight : {false, true}) {
        Sandwich net([](const at::Tensor& x) { return x * 0; });
        torch::optim::SGD sgd(net->parameters(), 0.01);
        auto [model, optimizer] = amp::initialize(
            net, sgd,
            {.opt_level = level, .loss_scale = 16.0, .verbosity = 0, .check_finite = true});
        const auto loss = [&, &model = model] {
          const at::Tensor x = torch::ones({3, 4}).requires_grad_();
          const at::Tensor y = model(x).sum();
          const at::Tensor of = of_weight ? net->stem->weight : x;
          const at::Tensor gradient = torch::autograd::grad({y}, {of}, {}, true, true)[0];
          return y + penalty.of(gradient);
        };
        amp::scale_loss(loss(), optimizer).backward();
        const amp::StepResult result = optimizer.step();
        const Explanation why = explain_overflow(model, optimizer, loss);
        SCOPED_TRACE(std::string(level) + penalty.name + (of_weight ? " w " : " x ") +
                     why.to_text());
        EXPECT_TRUE(result.skipped());
        ASSERT_TRUE(why.first.has_value());
        EXPECT_EQ(why.first->name, penalty.op);
        EXPECT_EQ(why.first->module, "after stem");
      }
    }
  }
}

TEST(Explain, ProgramsThatCastByHandRunInFloat) {
  for (const char* level : {"O1", "O2"}) {
    Scene scene({.name = "cast by hand",
                 .level = level,
                 .input = 300,
                 .middle = [](const at::Tensor& x) { return (x * x / 1000.0).to(at::kHalf); },
                 .scale = 16});
    ASSERT_TRUE(scene.step().skipped());
    const Explanation why = scene.explain();
    EXPECT_TRUE(why.runs_in_float) << why.to_text();
    EXPECT_FALSE(why.fails_in_float) << why.to_text();
    ASSERT_TRUE(why.first.has_value());
    EXPECT_EQ(why.first->name, "mul");
    EXPECT_TRUE(why.advice.front().tried) << why.to_text();
  }
}

TEST(Explain, SaysWhereTheProgramDoesNotRunInFloat) {
  Scene scene({.name = "insists on half",
               .input = 300,
               .middle =
                   [](const at::Tensor& x) {
                     TORCH_CHECK(x.scalar_type() == at::kHalf);
                     return x * x / 1000.0;
                   },
               .scale = 16});
  ASSERT_TRUE(scene.step().skipped());
  const Explanation why = scene.explain();
  EXPECT_FALSE(why.runs_in_float);
  EXPECT_FALSE(why.fails_in_float);
  EXPECT_THAT(why.to_text(), testing::HasSubstr("; does not run in float\n"));
  EXPECT_THAT(why.to_json(), testing::HasSubstr("\"runs_in_float\": false"));
}

TEST(Explain, JsonAndTextHoldTheStory) {
  Scene scene({.name = "square",
               .input = 300,
               .middle = [](const at::Tensor& x) { return x * x / 1000.0; },
               .scale = 16});
  ASSERT_TRUE(scene.step().skipped());
  const Explanation why = scene.explain();
  const std::string text = why.to_text();
  EXPECT_THAT(text, testing::StartsWith("mul (between stem and head) overflowed\n"
                                        "  at O1, loss scale 16; passes in float\n"
                                        "  input 0: Half [3, 8], 300 to 300"));
  EXPECT_THAT(text, testing::HasSubstr("tried: keep mul in float: policy.with("));
  EXPECT_LE(std::ranges::count(text, '\n'), 12);
  const std::string json = why.to_json();
  EXPECT_THAT(json, testing::HasSubstr("\"cause\": \"overflow\""));
  EXPECT_THAT(json, testing::HasSubstr("\"module\": \"between stem and head\""));
  EXPECT_THAT(json, testing::HasSubstr("\"tried\": true"));
}

TEST(Explain, TheEventIsTheShortForm) {
  Scene scene({.name = "square",
               .input = 300,
               .middle = [](const at::Tensor& x) { return x * x / 1000.0; },
               .scale = 16});
  ASSERT_TRUE(scene.step().skipped());
  const Explanation why = scene.explain();
  const report::SkipExplained event = why.to_event(7);
  EXPECT_EQ(event.step, 7);
  EXPECT_EQ(event.cause, "overflow");
  EXPECT_EQ(event.name, "mul");
  EXPECT_EQ(event.module, "between stem and head");
  EXPECT_FALSE(event.backward);
  EXPECT_EQ(event.scale, 16);
  EXPECT_EQ(event.summary, "mul (between stem and head) overflowed");
  ASSERT_EQ(event.advice.size(), why.advice.size());
  EXPECT_EQ(event.advice.front(), why.advice.front().text);
}

TEST(Explain, MistakesSaySo) {
  Scene scene({.name = "none"});
  Sandwich net{Step()};
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.verbosity = 0});
  EXPECT_THROW(explain_overflow(model, optimizer, [] { return torch::ones({}); }), ConfigError);
  EXPECT_THROW(explain_overflow(model, optimizer, [] { return at::Tensor(); }), ConfigError);
  EXPECT_THROW(explain_overflow(model, optimizer, {}), ConfigError);
  EXPECT_THROW(explain_overflow(
                   model, optimizer, [] { return torch::ones({}); }, 3),
               ConfigError);
  EXPECT_THROW(
      explain_overflow(model, optimizer,
                       []() -> at::Tensor { throw std::runtime_error("the caller's own"); }),
      std::runtime_error);
}

}  // namespace
}  // namespace mezzo::insight
