// dry_run(): ranges are those of the step, policies keep in float what the low type cannot hold,
// and files of them are read again.
#include "mezzo/insight_dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "insight/gallery.h"
#include "insight/noisy_training.h"

namespace mezzo::insight {
namespace {

Operator find_range(const DryRun& run, const std::string& name, const std::string& module,
                    bool backward = false) {
  for (const Operator& each : run.ranges()) {
    if (each.name == name && each.module == module && each.backward == backward) return each;
  }
  ADD_FAILURE() << "no " << name << " of " << module << " in\n" << run.to_json();
  return {};
}

/// The squares of inputs of 300 leave float16, not bfloat16.
Sandwich squares() {
  return Sandwich([](const at::Tensor& x) { return torch::relu(x * x) * 1e-3; });
}

TEST(DryRun, RangesAreThoseOfEveryOperatorForwardAndBackward) {
  Sandwich net = squares();
  const at::Tensor x = torch::tensor({{300.0, 300.0, 300.0, 300.0}, {-8.0, -8.0, -8.0, -8.0}});
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  const Operator stem = find_range(run, "addmm", "stem");
  ASSERT_EQ(stem.inputs.size(), 3U);
  EXPECT_EQ(stem.inputs[0].parameter, "stem.bias");
  EXPECT_EQ(stem.inputs[1].min, -8);
  EXPECT_EQ(stem.inputs[1].max, 300);
  EXPECT_EQ(stem.inputs[1].sizes, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(stem.inputs[2].parameter, "stem.weight");
  EXPECT_EQ(stem.output.min, -8);
  EXPECT_EQ(stem.output.max, 300);
  const Operator square = find_range(run, "mul", "between stem and head");
  EXPECT_EQ(square.output.max, 90000);
  EXPECT_EQ(square.output.smallest, 64);
  // Each of eight outputs feeds two sums of an eighth; then 1e-3, then twice x.
  const Operator back = find_range(run, "addmm", "head", true);
  EXPECT_EQ(back.inputs.front().max, 1);
  const Operator relu = find_range(run, "relu", "between stem and head", true);
  EXPECT_NEAR(relu.output.max, 0.25e-3, 1e-9);
  const Operator last = find_range(run, "addmm", "stem", true);
  EXPECT_NEAR(last.inputs.front().max, 0.25e-3 * 600, 1e-6);
  EXPECT_NEAR(last.inputs.front().min, -0.25e-3 * 16, 1e-7);
}

TEST(DryRun, ThePolicyKeepsWhatOverflowsAndSaysWhy) {
  Sandwich net = squares();
  const at::Tensor x = torch::full({3, 4}, 300.0);
  const auto loss = [&] { return net(x).sum(); };
  const DryRun run = dry_run(net, loss);
  const AdvisedPolicy half = run.policy(at::kHalf), wide = run.policy(at::kBFloat16);
  EXPECT_EQ(half.low(), at::kHalf);
  EXPECT_EQ(half.classify("mul"), CastClass::kFloat);
  EXPECT_EQ(half.classify("addmm"), CastClass::kLow);
  ASSERT_EQ(half.reasons().size(), 1U) << run.to_text();
  EXPECT_EQ(half.reasons()[0].name, "mul");
  EXPECT_THAT(half.reasons()[0].text, testing::HasSubstr("reaches 9e+04 (between stem and head)"));
  EXPECT_TRUE(wide.reasons().empty()) << run.to_text();
  // With the policy a step passes that does not pass without it.
  const auto passes = [&](const Policy& policy) {
    Sandwich trained = squares();
    torch::optim::SGD sgd(trained->parameters(), 0.01);
    auto [model, optimizer] = amp::initialize(trained, sgd,
                                              {.opt_level = "O1",
                                               .loss_scale = 1.0,
                                               .verbosity = 0,
                                               .check_finite = true,
                                               .policy = policy});
    amp::scale_loss(model(x).sum(), optimizer).backward();
    return optimizer.step().applied();
  };
  EXPECT_FALSE(passes(Policy::defaults(at::kHalf)));
  EXPECT_TRUE(passes(half));
}

TEST(DryRun, PolicyFilesAreReadAgain) {
  Sandwich net = squares();
  const at::Tensor x = torch::full({3, 4}, 300.0);
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  for (const at::ScalarType type :
       {at::kHalf, at::kBFloat16, at::ScalarType::Float8_e4m3fn, at::ScalarType::Float8_e5m2}) {
    const AdvisedPolicy advised = run.policy(type);
    EXPECT_EQ(advised.target(), type);
    std::istringstream file(advised.toml());
    const Policy policy = Policy::from_toml(file, "advice");
    EXPECT_EQ(policy.low(), type == at::kHalf ? at::kHalf : at::kBFloat16);
    for (const std::string name : {"mul", "addmm", "relu", "sum"})
      EXPECT_EQ(policy.classify(name), advised.classify(name)) << advised.toml();
  }
  EXPECT_THAT(run.policy(at::kHalf).toml(), testing::HasSubstr("\"mul\",  # its result reaches"));
  EXPECT_THROW(run.policy(at::kFloat), ConfigError);
  EXPECT_THROW(run.costs(at::ScalarType::Float8_e5m2), ConfigError);
}

TEST(DryRun, WhatLosesItsDigitsInHalfStaysFloat) {
  // 2048 + x in half keeps whole numbers of x alone; in the end half of x is lost.
  Sandwich net([](const at::Tensor& x) { return torch::relu(x + 2048.0) - 2048.0; });
  const at::Tensor x = torch::full({3, 4}, 0.3);
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  const AdvisedPolicy half = run.policy(at::kHalf);
  EXPECT_EQ(half.classify("sub"), CastClass::kFloat) << run.to_text();
  EXPECT_THAT(half.toml(), testing::HasSubstr("errs by 100 %"));
  // In float it subtracts what was rounded before, unless that stays float, too.
  for (const std::string name : {"add", "relu"})
    EXPECT_EQ(half.classify(name), CastClass::kFloat) << run.to_text();
  EXPECT_EQ(half.classify("addmm"), CastClass::kLow) << run.to_text();
}

TEST(DryRun, TheLossScaleLeavesGradientsRoom) {
  Sandwich net([](const at::Tensor& x) { return x * 10; });
  const at::Tensor x = torch::ones({1, 4});
  // The weights of the head get the largest gradient: the 10 that each column holds.
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  EXPECT_EQ(run.policy(at::kHalf).loss_scale(), 2048) << "the largest 2^k with 10 * 2^k <= 32752";
  EXPECT_EQ(run.policy(at::kBFloat16).loss_scale(), 1);
}

TEST(DryRun, Float8IsEstimatedByRoundingTheOperands) {
  torch::manual_seed(4);
  torch::nn::Linear net(torch::nn::LinearOptions(64, 64).bias(false));
  const at::Tensor x = torch::randn({32, 64});
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  const auto error_of = [&](at::ScalarType type, double end) {
    const auto rounded = [&](const at::Tensor& tensor) {
      const double scale =
          std::exp2(std::floor(std::log2(end / tensor.abs().max().item<double>())));
      return tensor.mul(scale).to(type).to(at::kDouble).div(scale);
    };
    const at::Tensor exact = x.to(at::kDouble).mm(net->weight.detach().t().to(at::kDouble));
    const at::Tensor low = rounded(x).mm(rounded(net->weight.detach()).t());
    return ((low - exact).abs().max() / exact.abs().max()).item<double>();
  };
  for (const auto& [type, end] : {std::pair(at::ScalarType::Float8_e4m3fn, 448.0),
                                  std::pair(at::ScalarType::Float8_e5m2, 57344.0)}) {
    const auto json = nlohmann::json::parse(run.to_json());
    const AdvisedPolicy advised = run.policy(type);
    ASSERT_EQ(advised.reasons().size(), 1U);
    std::ostringstream figure;
    figure.precision(3);
    figure << 100 * error_of(type, end);
    EXPECT_THAT(advised.reasons()[0].text, testing::HasSubstr("at most " + figure.str() + " %"));
    EXPECT_THAT(advised.reasons()[0].text, testing::HasSubstr("would bear it"));
  }
}

TEST(DryRun, CostsAreMeasuredByClassAndOddSizesAreNamed) {
  torch::nn::Sequential net(torch::nn::Linear(16, 12), torch::nn::ReLU(),
                            torch::nn::Linear(12, 16));
  const at::Tensor x = torch::ones({8, 16});
  const DryRun run = dry_run(net, [&] { return net->forward(x).softmax(1).sum(); });
  const std::vector<ClassCost> costs = run.costs(at::kHalf);
  const auto low = std::ranges::find(costs, CastClass::kLow, &ClassCost::cast_class);
  ASSERT_NE(low, costs.end());
  EXPECT_EQ(low->calls, 2);
  EXPECT_EQ(low->float_bytes, 4 * 8 * (12 + 16));
  EXPECT_EQ(low->low_bytes, 2 * 8 * (12 + 16));
  EXPECT_GT(low->float_seconds, 0);
  EXPECT_GT(low->low_seconds, 0);
  const auto wide = std::ranges::find(costs, CastClass::kFloat, &ClassCost::cast_class);
  ASSERT_NE(wide, costs.end());
  EXPECT_EQ(wide->low_bytes, wide->float_bytes);
  std::vector<std::string> odd;
  for (const OddSize& each : run.odd_sizes()) {
    odd.push_back(each.module + " " + std::to_string(each.sizes[0]) + "x" +
                  std::to_string(each.sizes[1]) + " " + std::to_string(each.padded[0]) + "x" +
                  std::to_string(each.padded[1]));
  }
  EXPECT_THAT(odd, testing::ElementsAre("0 16x12 16x16", "2 8x12 8x16", "2 12x16 16x16"));
}

TEST(DryRun, StepsAreMergedIntoOneRange) {
  Sandwich net;
  float next = 1;
  const DryRun run = dry_run(
      net,
      [&] {
        next *= -2;
        return net(torch::full({3, 4}, next)).sum();
      },
      3);
  EXPECT_EQ(run.steps(), 3);
  const Operator stem = find_range(run, "addmm", "stem");
  EXPECT_EQ(stem.output.min, -8);
  EXPECT_EQ(stem.output.max, 4);
  EXPECT_EQ(stem.output.smallest, 2);
}

TEST(DryRun, AModelOfAnyLevelRunsInFloatAndIsLeftAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O5"}) {
    const auto without = trained_noisily(level, false, {});
    const auto with = trained_noisily(level, false, [&](const NoisyStep& step) {
      const DryRun run = dry_run(step.model, step.loss);
      for (const Operator& each : run.ranges()) {
        for (const TensorRange& input : each.inputs) EXPECT_EQ(input.dtype, at::kFloat) << level;
      }
      find_range(run, "addmm", "first");
    });
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i)
      EXPECT_TRUE(with[i].equal(without[i])) << level << " tensor " << i;
  }
}

TEST(DryRun, ItsAdviceGoesIntoALog) {
  struct Memory final : report::Sink {
    void write(const report::Event& event) override { events.push_back(event); }
    std::vector<report::Event> events;
  };
  Sandwich net = squares();
  const at::Tensor x = torch::full({3, 4}, 300.0);
  const DryRun run = dry_run(net, [&] { return net(x).sum(); });
  Memory log;
  run.write(log);
  ASSERT_EQ(log.events.size(), 1U);
  const auto& advised = std::get<report::PrecisionAdvised>(log.events[0]);
  EXPECT_EQ(advised.steps, 1);
  EXPECT_EQ(advised.text, run.to_text());
  EXPECT_EQ(advised.policies.at("float16"), run.policy(at::kHalf).toml());
  EXPECT_EQ(advised.policies.size(), 4U);
  const auto reasons = run.policy(at::kHalf).reasons();
  ASSERT_EQ(reasons.size(), 1U);
  ASSERT_FALSE(advised.operators.empty());
  EXPECT_EQ(advised.operators.front(),
            (report::AdvisedOperator{"float16", "mul", "float", reasons.front().text}));
  std::int64_t calls = 0, all = 0;
  for (const ClassCost& cost : run.costs(at::kBFloat16)) all += cost.calls;
  for (const report::AdvisedCost& cost : advised.costs) {
    if (cost.type == "bfloat16") calls += cost.calls;
  }
  EXPECT_EQ(calls, all);
  EXPECT_GT(all, 0);
  EXPECT_EQ(advised.odd_sizes.size(), run.odd_sizes().size());
}

TEST(DryRun, WrongUseIsRefused) {
  Sandwich net;
  const at::Tensor x = torch::ones({3, 4});
  EXPECT_THROW(dry_run(
                   net, [&] { return net(x).sum(); }, 0),
               ConfigError);
  EXPECT_THROW(dry_run(net, [&] { return net(x); }), ConfigError);
  EXPECT_THROW(dry_run(net, {}), ConfigError);
  Sandwich empty(nullptr);
  EXPECT_THROW(dry_run(empty, [&] { return net(x).sum(); }), ConfigError);
}

}  // namespace
}  // namespace mezzo::insight
