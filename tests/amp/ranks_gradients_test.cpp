// Gradients that several processes average, on their way between scopes.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "distributed/several.h"
#include "mezzo/grad_scaler.h"
#include "mezzo/parallel.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::world;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

at::Tensor row(double factor = 1) {
  return torch::tensor({{0.5F, -1.0F, 2.0F}}) * factor;
}

const Rank kSmall("amp accumulates small gradients", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    for (const bool delayed : {false, true}) {
      at(level + (delayed ? " delay_unscale" : " no_sync"));
      Line net;
      torch::optim::SGD sgd(net->parameters(), 1.0);
      Options options = at_level(level);
      options.init_loss_scale = 65536;
      auto [model, optimizer] = initialize(net, sgd, options);
      const parallel::DistributedDataParallel ddp(model);
      // Far below what half can hold, and within it when it is scaled.
      constexpr double kSmallest = 0x1p-28;
      optimizer.zero_grad();
      for (int micro = 0; micro < 4; ++micro) {
        const auto loss = [&] { return ddp(row()).sum() * (kSmallest * (rank() + 1)); };
        if (micro == 3) {
          scale_loss(loss(), optimizer).backward();
        } else if (delayed) {
          scale_loss(loss(), optimizer, {.delay_unscale = true}).backward();
        } else {
          const auto guard = ddp.no_sync();
          scale_loss(loss(), optimizer).backward();
        }
      }
      const at::Tensor gradient = master_params(optimizer)[0].grad();
      ASSERT_TRUE(gradient.defined()) << level;
      EXPECT_TRUE(torch::allclose(gradient / kSmallest, row() * (4 * 1.5), 2e-3))
          << level << '\n'
          << gradient / kSmallest;
      EXPECT_TRUE(optimizer.step().applied());
    }
  }
});

TEST(Ranks, AccumulateGradientsThatOnlyTheScaleKeepsAboveZero) {
  expect_all_pass("amp accumulates small gradients");
}

torch::nn::Sequential layers(unsigned seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                               torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

at::Tensor batch(int step, int of_rank) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + of_rank));
  return torch::randn({4, 3});
}

const Rank kUnused("amp gradients of another rank alone", [] {
  // A weight that only rank 1 uses, in two backwards that are both averaged: what the first one
  // brought is there for rank 0, too, though nothing of its own has touched it.
  start();
  for (const std::string level : {"O0", "O1", "O2"}) {
    at(level);
    torch::nn::Linear used(torch::nn::LinearOptions(3, 1).bias(false));
    torch::nn::Linear seldom(torch::nn::LinearOptions(3, 1).bias(false));
    torch::nn::Sequential net(used, seldom);
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor before = master_params(optimizer)[1].detach().clone();
      optimizer.zero_grad();
      for (int micro = 0; micro < 2; ++micro) {
        const at::Tensor y = ddp.call([&](torch::nn::SequentialImpl&) {
          const at::Tensor x = row().to(used->weight.scalar_type());
          return rank() == 1 ? used(x) + seldom(x) : used(x);
        });
        scale_loss(y.sum(), optimizer).backward();
      }
      EXPECT_TRUE(optimizer.step().applied());
      const at::Tensor moved = before - master_params(optimizer)[1];
      EXPECT_TRUE(torch::allclose(moved, row() * 0.125, 1e-3, 1e-5)) << level << '\n' << moved;
    }
  }
});

TEST(Ranks, AccumulateWhatOnlyAnotherRankHas) {
  expect_all_pass("amp gradients of another rank alone");
}

const Rank kFrozen("amp freezes a weight", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2"}) {
    at(level);
    torch::nn::Sequential net = layers(4);
    torch::optim::SGD sgd(net->parameters(),
                          torch::optim::SGDOptions(0.1).momentum(0.5).weight_decay(0.5));
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    const at::Tensor weight = net[2]->as<torch::nn::Linear>()->weight;
    at::Tensor before;
    for (int step = 0; step < 5; ++step) {
      if (step == 2) {
        weight.set_requires_grad(false);
        before = weight.detach().clone();
      }
      optimizer.zero_grad();
      scale_loss(ddp(batch(step, rank())).square().mean(), optimizer).backward();
      optimizer.step();
    }
    EXPECT_TRUE(torch::equal(weight, before)) << level;
  }
});

TEST(Ranks, LeaveAFrozenWeightWhereItIs) {
  expect_all_pass("amp freezes a weight");
}

const Rank kSilent("amp scope without a backward", [] {
  // Rank 1's loss touches no parameter: it takes part inside of its scope.
  start();
  for (const std::string level : {"O0", "O1", "O2"}) {
    at(level);
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    const Line before;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const at::Tensor y = ddp(row());
      if (rank() == 0) {
        scale_loss(y.sum(), optimizer).backward();
      } else {
        auto scaled = scale_loss(torch::zeros({1}), optimizer);
        ddp.finish_backward();
      }
      EXPECT_TRUE(optimizer.step().applied());
    }
    const at::Tensor moved = before->line->weight - master_params(optimizer)[0];
    EXPECT_TRUE(torch::allclose(moved, row() * 0.125, 1e-3, 1e-5)) << level << '\n' << moved;
  }
});

TEST(Ranks, ALossWithoutParametersTakesPartInsideItsScope) {
  expect_all_pass("amp scope without a backward");
}

const Rank kScaler("amp grad scaler's collectives", [] {
  start();
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  const parallel::DistributedDataParallel ddp(net);
  GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 4; ++step) {
    ddp.zero_grad();
    const bool overflows = step == 2 && rank() == 1;
    scaler.scale(ddp(row()).sum() * (overflows ? std::numeric_limits<double>::infinity() : 1.0))
        .backward();
    const std::int64_t before = world().counts().collectives;
    EXPECT_EQ(scaler.step(sgd).skipped(), step == 2);
    scaler.update();
    EXPECT_EQ(world().counts().collectives, before) << "averaged gradients told it already";
  }
  EXPECT_EQ(scaler.get_scale(), 512);
  const std::int64_t before = world().counts().collectives;
  Line alone;
  torch::optim::SGD own(alone->parameters(), 0.125);
  scaler.scale(alone(row()).sum() * (rank() == 0 ? std::numeric_limits<double>::infinity() : 1.0))
      .backward();
  scaler.step(own);
  scaler.update();
  EXPECT_EQ(world().counts().collectives, before + 1);
  EXPECT_EQ(scaler.get_scale(), 256);
});

TEST(Ranks, AGradScalerAgreesOnlyWhereTheGradientsDidNot) {
  expect_all_pass("amp grad scaler's collectives");
}

}  // namespace
}  // namespace mezzo::amp
