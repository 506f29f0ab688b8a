// Insight in several real processes: a fault on one rank alone is explained alike on all, and no
// tool moves a training that is spread over ranks.
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <optional>

#include "insight/gallery.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::insight {
namespace {

using parallel::rank;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;
using testing::HasSubstr;

const std::vector<std::string> kRankLevels{"O0", "O1", "O2", "O3", "O4", "O5"};

/// A network and its optimizer, spread over the ranks.
struct Spread {
  explicit Spread(const std::string& level, Step middle = {})
      : net(std::move(middle)), sgd(net->parameters(), torch::optim::SGDOptions(0.01)) {
    auto [made, made_optimizer] = amp::initialize(
        net, sgd, {.opt_level = level, .loss_scale = 16.0, .verbosity = 0, .check_finite = true});
    model = made;
    optimizer = made_optimizer;
    ddp = std::make_unique<parallel::DistributedDataParallel<amp::Model<Sandwich>>>(model);
  }
  at::Tensor loss() { return (*ddp)(x).sum(); }
  amp::StepResult step() {
    optimizer.zero_grad();
    amp::scale_loss(loss(), optimizer).backward();
    return optimizer.step();
  }

  Sandwich net;
  torch::optim::SGD sgd;
  amp::Model<Sandwich> model;
  amp::Optimizer optimizer;
  std::unique_ptr<parallel::DistributedDataParallel<amp::Model<Sandwich>>> ddp;
  at::Tensor x = torch::full({3, 4}, 1.0 + rank());
};

/// Does every rank hold this text?
void expect_same_text(const std::string& mine, const std::string& what) {
  constexpr std::int64_t kMost = 1 << 16;
  ASSERT_LT(mine.size(), static_cast<std::size_t>(kMost));
  at::Tensor bytes = torch::zeros({kMost}, at::kByte);
  std::memcpy(bytes.data_ptr(), mine.data(), mine.size());
  const at::Tensor all = parallel::world().all_gather(bytes);
  for (int other = 1; other < parallel::world_size(); ++other)
    EXPECT_TRUE(torch::equal(all[0], all[other])) << what << '\n' << mine;
}

const Rank kOneRankFails("insight a fault on rank 1 alone", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    at(level);
    Spread training(level, [](const at::Tensor& x) { return x * x / 1000.0; });
    if (rank() == 1) training.x.fill_(300);
    ASSERT_TRUE(training.step().skipped()) << level;
    std::vector<at::Tensor> held;
    for (const at::Tensor& each : training.net->parameters()) {
      held.push_back(each.detach().clone());
      if (each.grad().defined()) held.push_back(each.grad().clone());
    }
    const Explanation why =
        explain_overflow(*training.ddp, training.optimizer, [&] { return training.loss(); });
    const std::string text = why.to_text();
    EXPECT_EQ(why.rank, 1) << text;
    ASSERT_TRUE(why.first.has_value()) << text;
    EXPECT_EQ(why.first->name, "mul") << text;
    EXPECT_EQ(why.first->module, kBetween) << text;
    EXPECT_EQ(to_string(why.cause), "overflow") << text;
    EXPECT_FALSE(why.fails_in_float) << text;
    EXPECT_TRUE(why.advice.front().tried) << text;
    EXPECT_THAT(text, HasSubstr("rank 1"));
    expect_same_text(why.to_json(), level);
    std::size_t place = 0;
    for (const at::Tensor& each : training.net->parameters()) {
      EXPECT_TRUE(each.detach().equal(held[place++])) << level;
      if (each.grad().defined()) {
        EXPECT_TRUE(each.grad().equal(held[place++])) << level;
      }
    }
    // The first advice, given to all, makes the step pass on all.
    if (level != "O1") continue;
    Sandwich net([](const at::Tensor& x) { return x * x / 1000.0; });
    torch::optim::SGD sgd(net->parameters(), 0.01);
    amp::Options options{
        .opt_level = level, .loss_scale = 16.0, .verbosity = 0, .check_finite = true};
    options.policy = why.advice.front().policy;
    auto [model, optimizer] = amp::initialize(net, sgd, options);
    const parallel::DistributedDataParallel ddp(model);
    amp::scale_loss(ddp(training.x).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
  }
});

TEST(InsightRanks, AFaultOnOneOfThemIsExplainedAlikeOnAll) {
  expect_all_pass("insight a fault on rank 1 alone");
}

TEST(InsightRanks, AFaultOnOneOfThreeIsExplainedAlikeOnAll) {
  expect_all_pass("insight a fault on rank 1 alone", {.ranks = 3});
}

const Rank kNobodyFails("insight a step that passes everywhere", [] {
  start();
  Spread training("O1");
  ASSERT_TRUE(training.step().applied());
  const Explanation why =
      explain_overflow(*training.ddp, training.optimizer, [&] { return training.loss(); });
  EXPECT_FALSE(why.reproduced);
});

TEST(InsightRanks, AStepThatPassesOnAllIsNotReproduced) {
  expect_all_pass("insight a step that passes everywhere");
}

/// Keeps the watched steps of this rank.
struct OwnSteps final : report::Sink {
  void write(const report::Event& event) override {
    steps.push_back(std::get<report::StepWatched>(event));
  }
  std::vector<report::StepWatched> steps;
};

/// The weights after five steps, with the tools that look at a training or without.
std::vector<at::Tensor> trained_together(const std::string& level, bool looks) {
  torch::manual_seed(7);
  Spread training(level);
  OwnSteps own;
  std::optional<Watch> watching;
  if (looks) watching.emplace(watch(*training.ddp, training.optimizer, own, {.every = 2}));
  const auto loss = [&] { return training.loss(); };
  for (int i = 0; i < 5; ++i) {
    training.x = torch::rand({3, 4}) + rank();
    training.step();
    if (!looks) continue;
    watching->step();
    if (i != 3) continue;
    EXPECT_FALSE(dry_run(*training.ddp, loss).ranges().empty()) << level;
    if (level != "O0") {
      EXPECT_FALSE(shadow_run(*training.ddp, loss).operators().empty()) << level;
    }
  }
  if (looks) {
    EXPECT_EQ(own.steps.size(), 2U) << level;
    // Gradients are this rank's own, before they are averaged: rank 1 was given larger inputs.
    for (const report::Watched& row : own.steps.back().rows) {
      if (row.parameter != "stem.weight") continue;
      const at::Tensor norm = torch::full({1}, row.gradients.norm, at::kDouble);
      const at::Tensor all = parallel::world().all_gather(norm);
      EXPECT_GT(all[1].item<double>(), 1.2 * all[0].item<double>()) << level;
    }
  }
  std::vector<at::Tensor> held;
  for (const at::Tensor& each : amp::master_params(training.optimizer))
    held.push_back(each.detach().clone());
  return held;
}

const Rank kToolsTogether("insight tools leave ranks alone", [] {
  start();
  for (const std::string& level : kRankLevels) {
    at(level);
    const std::vector<at::Tensor> without = trained_together(level, false);
    const std::vector<at::Tensor> with = trained_together(level, true);
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i)
      EXPECT_TRUE(with[i].equal(without[i])) << level << " weight " << i;
  }
});

TEST(InsightRanks, WatchDryRunAndShadowRunLeaveATrainingOfSeveralAloneToTheBit) {
  expect_all_pass("insight tools leave ranks alone", {.limit = std::chrono::seconds(120)});
}

}  // namespace
}  // namespace mezzo::insight
