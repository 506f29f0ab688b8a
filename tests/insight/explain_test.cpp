// explain_overflow() beside the gallery: training is left alone to the bit, scales, losses, ranks
// and text are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "insight/gallery.h"
#include "mezzo/optim.h"
#include "mezzo/recompute.h"

namespace mezzo::insight {
namespace {

/// Dropout and batch norm: random numbers and buffers.
struct NoisyImpl : torch::nn::Module {
  NoisyImpl() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    second = register_module("second", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(drop(torch::relu(norm(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Noisy);

constexpr double kTooLarge = std::numeric_limits<double>::infinity();

/// Everything that training moves, after ten steps of which some overflow.
std::vector<at::Tensor> trained(const std::string& level, bool fused, bool explains,
                                int* explained = nullptr) {
  torch::manual_seed(3);
  Noisy net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  if (fused) {
    inner = std::make_unique<optim::FusedAdam>(net->parameters(), optim::FusedAdamOptions(1e-2));
  } else {
    inner = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  auto [model, optimizer] = amp::initialize(net, *inner,
                                            {.opt_level = level,
                                             .loss_scale = "dynamic",
                                             .init_loss_scale = 8388608,
                                             .growth_interval = 3,
                                             .verbosity = 0,
                                             .check_finite = true});
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = torch::randn({6, 4}) * (i == 5 ? kTooLarge : 1.0);
    const auto loss = [&, &model = model] { return model(x).pow(2).sum(); };
    optimizer.zero_grad();
    amp::scale_loss(loss(), optimizer).backward();
    if (explains && i == 4) explain_overflow(model, optimizer, loss);  // before a good step
    const bool skipped = optimizer.step().skipped();
    if (!skipped || !explains) continue;
    const Explanation why = explain_overflow(model, optimizer, loss);
    EXPECT_TRUE(why.reproduced) << level << " step " << i;
    if (explained != nullptr) ++*explained;
  }
  std::vector<at::Tensor> all{
      torch::rand({2}), torch::full({1}, optimizer.loss_scale(), at::kDouble),
      torch::full({1}, optimizer.skipped_steps()), torch::full({1}, optimizer.applied_steps())};
  for (const auto& item : amp::model_state_dict(model)) all.push_back(item.value());
  for (const at::Tensor& parameter : net->parameters()) {
    all.push_back(parameter.detach().clone());
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros({}));
  }
  return all;
}

TEST(Explain, LeavesTrainingAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    for (const bool fused : {false, true}) {
      int explained = 0;
      const auto without = trained(level, fused, false);
      const auto with = trained(level, fused, true, &explained);
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
  EXPECT_TRUE(why.first->backward);
  EXPECT_EQ(why.cause, Cause::kDivisionByZero);
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
