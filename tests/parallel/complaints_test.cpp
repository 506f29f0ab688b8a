// The most frequent complaints of Apex's users in parallel training, each as a test that it cannot
// be said of Mezzo. The numbers go on from tests/amp/complaints_test.cpp.
#include <gmock/gmock.h>

#include <limits>

#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/near.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_near;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kAccumulation("complaint 8", [] {
  start();
  for (const std::string level : {"O1", "O2", "O4"}) {
    Branches net = net_of(1);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 1024, .verbosity = 0});
    DistributedDataParallel ddp(model);
    for (int step = 0; step < 3; ++step) {
      const std::int64_t before = ddp.statistics().reductions;
      {
        const auto guard = ddp.no_sync();
        for (int micro = 0; micro < 2; ++micro) {
          const at::Tensor all = batch_of(10 + static_cast<unsigned>(micro), 4 * world_size());
          amp::scale_loss(loss_of(ddp(own_rows(all))), optimizer).backward();
        }
      }
      amp::scale_loss(loss_of(ddp(own_rows(batch_of(20, 4 * world_size())))), optimizer).backward();
      EXPECT_EQ(ddp.statistics().reductions - before, 1) << level << ": not once a step";
      EXPECT_TRUE(optimizer.step().applied()) << level;
      optimizer.zero_grad();
    }
    expect_same_on_all_ranks(amp::master_params(optimizer), level + ": masters");
  }
});

TEST(Complaint, Number8AccumulationWithoutReductionKeepsMastersEqual) {
  expect_all_pass("complaint 8");
}

const Rank kUnused("complaint 11", [] {
  start();
  Branches net = net_of(2);
  DistributedDataParallel ddp(net);
  const at::Tensor all = batch_of(3, 4 * world_size());
  for (int step = 0; step < 4; ++step) {
    // The ranks do not even agree on what they use.
    const bool left = (step + rank()) % 2 == 0;
    net->zero_grad();
    loss_of(ddp(own_rows(all), left, !left)).backward();
    testing_ranks::Gradients expected;
    for (int r = 0; r < world_size(); ++r) {
      Branches one = net_of(2);
      const bool went_left = (step + r) % 2 == 0;
      loss_of(one(all.narrow(0, r * 4, 4), went_left, !went_left)).backward();
      const auto of_one = gradients_of(one);
      if (expected.empty()) expected.resize(of_one.size());
      for (std::size_t i = 0; i < of_one.size(); ++i) {
        if (!of_one[i].defined()) continue;
        const at::Tensor part = of_one[i] / world_size();
        expected[i] = expected[i].defined() ? expected[i] + part : part;
      }
    }
    expect_equal(gradients_of(net), expected, "step " + std::to_string(step));
  }
});

TEST(Complaint, Number11ParametersThatSomeRanksDoNotUseAreNoErrorAndNoHang) {
  expect_all_pass("complaint 11");
}

const Rank kEvaluation("complaint 12", [] {
  start();
  for (const bool tracks : {true, false}) {
    for (const bool channel_last : {true, false}) {
      SyncBatchNorm norm(SyncBatchNormOptions{.num_features = 5,
                                              .track_running_stats = tracks,
                                              .channel_last = channel_last,
                                              .fuse_relu = true});
      const auto batch = [&](int rows) {
        torch::manual_seed(static_cast<std::uint64_t>(rows));
        const at::Tensor x = torch::randn({rows, 5, 3, 2});
        return channel_last ? x.movedim(1, -1).contiguous() : x;
      };
      norm(batch(4));
      norm->eval();
      const at::Tensor x = batch(3);
      const at::Tensor second = channel_last ? x.movedim(-1, 1) : x;
      const at::Tensor expected =
          at::batch_norm(
              second.to(at::kDouble), norm->weight.to(at::kDouble), norm->bias.to(at::kDouble),
              tracks ? norm->running_mean.to(at::kDouble) : at::Tensor(),
              tracks ? norm->running_var.to(at::kDouble) : at::Tensor(), !tracks, 0.1, 1e-5, false)
              .relu();
      const at::Tensor y = norm(x);
      expect_near(channel_last ? y.movedim(-1, 1) : y, expected, 1e-5,
                  tracks ? "tracked" : "not tracked");
    }
  }
});

TEST(Complaint, Number12SyncBatchNormEvaluatesInEveryMode) {
  expect_all_pass("complaint 12");
}

const Rank kChannels("complaint 13", [] {
  start();
  for (const std::int64_t channels : {1, 3, 17, 33, 64, 100}) {
    for (const std::int64_t side : {1, 7, 61}) {
      torch::manual_seed(5);
      const at::Tensor all = torch::randn({4, side, side, channels}, at::kDouble) * 3 + 7;
      const at::Tensor expected =
          at::batch_norm(all.movedim(-1, 1), {}, {}, {}, {}, true, 0.1, 1e-5, false);
      SyncBatchNorm norm(
          SyncBatchNormOptions{.num_features = channels, .affine = false, .channel_last = true});
      const at::Tensor y = norm(all.narrow(0, 2 * rank(), 2).to(at::kFloat));
      expect_near(y.movedim(-1, 1), expected.narrow(0, 2 * rank(), 2), 2e-5,
                  std::to_string(channels) + " channels of " + std::to_string(side));
    }
  }
});

TEST(Complaint, Number13ChannelsLastIsRightForAnyNumberOfChannelsAndPixels) {
  expect_all_pass("complaint 13");
}

const Rank kUneven("complaint 14", [] {
  start();
  // One sample here, three there; no weights; two dimensions.
  torch::manual_seed(6);
  const at::Tensor all = torch::randn({4, 6}, at::kDouble);
  const at::Tensor expected = at::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  const std::int64_t first = rank() == 0 ? 0 : 1;
  const std::int64_t count = rank() == 0 ? 1 : 3;
  for (const bool channel_last : {false, true}) {
    SyncBatchNorm norm(
        SyncBatchNormOptions{.num_features = 6, .affine = false, .channel_last = channel_last});
    const at::Tensor x = all.narrow(0, first, count).to(at::kFloat).requires_grad_(true);
    const at::Tensor y = norm(x);
    expect_near(y, expected.narrow(0, first, count), 1e-5, "two dimensions");
    y.pow(2).sum().backward();
    EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  }
});

TEST(Complaint, Number14UnevenBatchesOneSampleAndTwoDimensionsAreRight) {
  expect_all_pass("complaint 14");
}

const Rank kDecision("complaint 22", [] {
  start();
  // No gradient is averaged: the ranks agree on the overflow all the same.
  for (const std::string level : {"O1", "O2"}) {
    torch::nn::Linear net(3, 2);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 1024, .verbosity = 0});
    for (const int bad : {-1, 0, 1}) {
      const double factor = rank() == bad ? std::numeric_limits<double>::infinity() : 1;
      amp::scale_loss(model(torch::ones({1, 3})).sum() * factor, optimizer).backward();
      EXPECT_EQ(optimizer.step().skipped(), bad >= 0) << level << bad;
      optimizer.zero_grad();
    }
    EXPECT_EQ(optimizer.loss_scale(), 256) << level;
  }
});

TEST(Complaint, Number22AllRanksDecideTogetherWhetherToSkip) {
  expect_all_pass("complaint 22");
}

}  // namespace
}  // namespace mezzo::parallel
