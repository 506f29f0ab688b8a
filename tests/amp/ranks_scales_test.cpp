// Loss scales of several processes whose gradients are averaged: equal, or the average means
// nothing.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;
using testing::HasSubstr;

const Rank kLeft("amp overflow after a rank has left", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    at(level);
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    auto join = ddp.join();
    for (int step = 0; step < (rank() == 0 ? 3 : 1); ++step) {
      optimizer.zero_grad();
      const double factor = step == 1 ? std::numeric_limits<double>::infinity() : 1.0;
      scale_loss(ddp(row()).sum() * factor, optimizer).backward();
      EXPECT_EQ(optimizer.step().skipped(), step == 1);
    }
    join.close();
    EXPECT_EQ(optimizer.loss_scale(), 512) << level;
    at(level + ": on together");
    for (int step = 0; step < 2; ++step) {
      const at::Tensor before = master_params(optimizer)[0].detach().clone();
      const at::Tensor all = parallel::world().all_gather(before.contiguous());
      EXPECT_TRUE(torch::equal(all[0], all[1])) << level;
      optimizer.zero_grad();
      scale_loss(ddp(row(1 + rank())).sum(), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
      const at::Tensor moved = before - master_params(optimizer)[0];
      EXPECT_TRUE(torch::allclose(moved, row() * (1.5 * 0.125), 1e-3)) << level << '\n' << moved;
    }
  }
});

TEST(Ranks, ARankThatLeftAJoinHasTheOthersLossScale) {
  expect_all_pass("amp overflow after a rank has left");
}

const Rank kBegin("amp begins with one scale", [] {
  start();
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  Options options = at_level("O2");
  options.init_loss_scale = rank() == 0 ? 256 : 2048;
  options.num_losses = 2;
  auto [model, optimizer] = initialize(net, sgd, options);
  // As from a checkpoint that this rank alone has read.
  if (rank() == 0) optimizer.set_loss_scale(128, 1);
  const parallel::DistributedDataParallel ddp(model);
  EXPECT_EQ(optimizer.loss_scale(0), 256);
  EXPECT_EQ(optimizer.loss_scale(1), 128);
});

TEST(Ranks, BeginWithRankZerosLossScales) {
  expect_all_pass("amp begins with one scale");
}

const Rank kDifferent("amp different numbers of losses", [] {
  start();
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  Options options = at_level("O2");
  options.num_losses = 1 + rank();
  auto [model, optimizer] = initialize(net, sgd, options);
  try {
    const parallel::DistributedDataParallel ddp(model);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 0 has 'loss scales: 1' where rank 1 has"));
  }
});

TEST(Ranks, DifferentNumbersOfLossesAreAnError) {
  expect_all_pass("amp different numbers of losses");
}

TEST(Model, TakesTheLossScalesThatItGave) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  at::Tensor scales = model.loss_scales();
  EXPECT_TRUE(torch::equal(scales, torch::tensor({{1024.0, 0.0, 0.0}}, at::kDouble)));
  scales[0][0] = 32;
  scales[0][1] = 1999;
  model.set_loss_scales(scales);
  EXPECT_EQ(optimizer.loss_scale(), 32);
  scale_loss(model(row()).sum(), optimizer).backward();
  optimizer.step();
  EXPECT_EQ(optimizer.loss_scale(), 64);
  EXPECT_THROW(model.set_loss_scales(scales.to(at::kFloat)), ConfigError);
  EXPECT_THROW(model.set_loss_scales(torch::zeros({2, 3}, at::kDouble)), ConfigError);
}

}  // namespace
}  // namespace mezzo::amp
