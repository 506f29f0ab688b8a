// Overflow flags and gradients that several processes share.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "distributed/several.h"
#include "mezzo/parallel.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor row(double factor = 1) {
  return torch::tensor({{0.5F, -1.0F, 2.0F}}) * factor;
}

/// One training of each rank's own; rank 1 overflows in the second of three steps.
void train_with_overflow(const Options& options, bool shared) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, options);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const bool overflows = step == 1 && rank() == 1;
    scale_loss(model(row()).sum() * (overflows ? kInf : 1.0), optimizer).backward();
    const bool skips = step == 1 && (shared || rank() == 1);
    EXPECT_EQ(optimizer.step().skipped(), skips) << step;
  }
  EXPECT_EQ(optimizer.loss_scale(), shared || rank() == 1 ? 512 : 1024);
}

const Rank kAgree("amp agrees", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    train_with_overflow(at_level(level), /*shared=*/true);
    Options deferred = at_level(level);
    deferred.defer_unscale = true;
    train_with_overflow(deferred, /*shared=*/true);
    Options alone = at_level(level);
    alone.overflow_group = OverflowGroup::none();
    train_with_overflow(alone, /*shared=*/false);
  }
});

TEST(Ranks, SkipTogetherUnlessToldToDecideAlone) {
  expect_all_pass("amp agrees");
}

const Rank kAverages("amp averages", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O5"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    at::Tensor expected = master_params(optimizer)[0].detach().clone();
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const double mine = rank() + 1;
      // Accumulation: the first micro-batch stays at home, also that of the first step of all.
      if (step == 0 || step == 3) {
        const auto guard = ddp.no_sync();
        scale_loss(ddp(row(mine)).sum(), optimizer).backward();
      }
      const bool overflows = step == 1 && rank() == 0 && level != "O0" && level != "O5";
      scale_loss(ddp(row(mine)).sum() * (overflows ? kInf : 1.0), optimizer).backward();
      const bool skips = step == 1 && level != "O0" && level != "O5";
      EXPECT_EQ(optimizer.step().skipped(), skips) << level << " step " << step;
      if (!skips) expected = expected - 0.125 * row(step == 0 || step == 3 ? 3.0 : 1.5);
      EXPECT_TRUE(torch::allclose(master_params(optimizer)[0], expected, 1e-4, 1e-5))
          << level << " step " << step << "\n"
          << master_params(optimizer)[0] << "\n"
          << expected;
    }
  }
});

const Rank kFirst("amp begins equal", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O3", "O5"}) {
    torch::manual_seed(100 + rank());
    torch::nn::Sequential net(torch::nn::Linear(7, 9), torch::nn::BatchNorm1d(9),
                              torch::nn::Linear(9, 2));
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor own = master_params(optimizer)[0].detach().clone();
    const parallel::DistributedDataParallel ddp(model);
    const auto expect_equal_ranks = [&](const std::string& when) {
      for (const at::Tensor& master : master_params(optimizer)) {
        const at::Tensor all = parallel::world().all_gather(master.detach().contiguous());
        EXPECT_TRUE(torch::equal(all[0], all[1])) << level << ' ' << when;
      }
      for (const auto& item : model_state_dict(model)) {
        const at::Tensor all = parallel::world().all_gather(item.value().contiguous());
        EXPECT_TRUE(torch::equal(all[0], all[1])) << level << ' ' << when << ' ' << item.key();
      }
    };
    expect_equal_ranks("at the beginning");
    // Rank 0's masters have not gone through their low type.
    if (rank() == 0) {
      EXPECT_TRUE(torch::equal(master_params(optimizer)[0], own)) << level;
    }
    {
      auto join = ddp.join();
      for (int step = 0; step < (rank() == 0 ? 2 : 4); ++step) {
        optimizer.zero_grad();
        scale_loss(ddp(torch::randn({4, 7})).square().mean(), optimizer).backward();
        optimizer.step();
      }
      join.close();
    }
    expect_equal_ranks("after a join");
  }
});

TEST(Ranks, MastersAreEqualToTheLastBit) {
  expect_all_pass("amp begins equal");
}

TEST(Ranks, StepByAveragedGradientsUnderEveryLevel) {
  expect_all_pass("amp averages");
}

}  // namespace
}  // namespace mezzo::amp
