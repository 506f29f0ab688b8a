// Gradients that several processes average, on their way between scopes: accumulated, undone, saved
// and loaded, of one optimizer or two.
#include <gmock/gmock.h>

#include <filesystem>
#include <limits>
#include <stdexcept>

#include "amp/training.h"
#include "mezzo/checkpoint.h"
#include "mezzo/grad_scaler.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::world;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

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

void expect_near_alone(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                       double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor error = (a[i].detach() - b[i].detach()).abs().max();
    EXPECT_LE(error.item<double>(), tolerance) << what << ", weight " << i;
  }
}

// A step of two micro-batches, of which the first was only accumulated.
struct GradientTraining {
  explicit GradientTraining(const std::string& level)
      : net(layers(3)), sgd(net->parameters(), torch::optim::SGDOptions(0.5)) {
    auto made = initialize(net, sgd, at_level(level));
    model.emplace(made.first);
    optimizer.emplace(made.second);
    ddp.emplace(*model, parallel::DDPOptions{.message_size = 1});
  }
  at::Tensor loss(int step) const { return (*ddp)(batch(step, rank())).square().mean(); }
  void accumulate(int step) {
    const auto guard = ddp->no_sync();
    scale_loss(loss(step), *optimizer).backward();
  }
  void reduce(int step) { scale_loss(loss(step), *optimizer).backward(); }
  std::vector<at::Tensor> masters() const { return master_params(*optimizer); }

  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  std::optional<Model<torch::nn::Sequential>> model;
  std::optional<Optimizer> optimizer;
  std::optional<parallel::DistributedDataParallel<Model<torch::nn::Sequential>>> ddp;
};

std::vector<at::Tensor> undisturbed(const std::string& level) {
  GradientTraining training(level);
  training.optimizer->zero_grad();
  training.accumulate(1);
  training.reduce(2);
  training.optimizer->step();
  std::vector<at::Tensor> copies;
  for (const at::Tensor& one : training.masters()) copies.push_back(one.detach().clone());
  return copies;
}

const Rank kUndone("amp undoes what was accumulated", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2"}) {
    const std::vector<at::Tensor> expected = undisturbed(level);
    GradientTraining training(level);
    // The order of the buckets is known when it breaks, and the first of them have left.
    training.optimizer->zero_grad();
    training.reduce(9);
    training.optimizer->zero_grad();
    at(level + ": accumulates");
    training.accumulate(1);
    at(level + ": breaks");
    bool thrown = false;
    try {
      const at::Tensor loss = training.ddp->call([&](torch::nn::SequentialImpl& net) {
        at::Tensor h = batch(5, rank()).to(net[0]->as<torch::nn::Linear>()->weight.scalar_type());
        h = torch::tanh(net[0]->as<torch::nn::Linear>()->forward(h));
        if (rank() == 1) {
          h.register_hook([](const at::Tensor&) -> at::Tensor {
            throw std::runtime_error("a mistake of rank 1");
          });
        }
        h = torch::tanh(net[2]->as<torch::nn::Linear>()->forward(h));
        return net[4]->as<torch::nn::Linear>()->forward(h).square().mean();
      });
      scale_loss(loss, *training.optimizer).backward();
    } catch (const std::exception&) {
      thrown = true;
    }
    EXPECT_TRUE(thrown);
    at(level + ": goes on");
    training.reduce(2);
    training.optimizer->step();
    expect_near_alone(training.masters(), expected, level == "O0" ? 1e-6 : 2e-3, level);
    for (const at::Tensor& one : training.masters()) {
      const at::Tensor all = world().all_gather(one.detach().contiguous());
      EXPECT_TRUE(torch::equal(all[0], all[1])) << level;
    }
  }
});

TEST(Ranks, ABackwardThatBreaksOffLeavesWhatWasAccumulated) {
  expect_all_pass("amp undoes what was accumulated");
}

const Rank kSaved("amp saves what was accumulated", [] {
  start();
  const std::string path =
      std::string(std::getenv("CHECKPOINT")) + std::to_string(rank()) + ".mezzo";
  for (const std::string level : {"O0", "O1", "O2"}) {
    at(level);
    const std::vector<at::Tensor> expected = undisturbed(level);
    {
      GradientTraining training(level);
      training.optimizer->zero_grad();
      training.accumulate(1);
      save_checkpoint(path, *training.model, *training.optimizer);
    }
    GradientTraining training(level);
    training.reduce(7);
    load_checkpoint(path, *training.model, *training.optimizer);
    training.reduce(2);
    training.optimizer->step();
    expect_near_alone(training.masters(), expected, 0, level);
  }
  std::filesystem::remove(path);
});

TEST(Ranks, ACheckpointBetweenTwoMicroBatchesGoesOnAsIfThereWereNone) {
  const std::string path = testing::TempDir() + "mezzo_accumulated_" + std::to_string(getpid());
  expect_all_pass("amp saves what was accumulated", {.environment = {{"CHECKPOINT", path}}});
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
    EXPECT_EQ(world().counts().collectives, before + 1) << "when averages are unscaled, and once";
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

TEST(Ranks, AGradScalerAgreesOncePerStep) {
  expect_all_pass("amp grad scaler's collectives");
}

const Rank kShared("amp two optimizers of a weight", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2"}) {
    at(level);
    Line net;
    torch::optim::SGD first(net->parameters(), 0.125);
    torch::optim::SGD second(net->parameters(), 0.25);
    auto [model, optimizers] = initialize(net, std::tie(first, second), at_level(level));
    Optimizer one = std::get<0>(optimizers);
    Optimizer other = std::get<1>(optimizers);
    const parallel::DistributedDataParallel ddp(model);
    const auto loss = [&] { return ddp(row(rank() + 1)).sum(); };
    const auto expect_gradient = [&](double factor) {
      const at::Tensor gradient = master_params(one)[0].grad();
      EXPECT_TRUE(torch::allclose(gradient, row(factor), 1e-3)) << level << '\n' << gradient;
    };
    one.zero_grad();
    scale_loss(loss(), {one, other}).backward();
    scale_loss(loss(), {one, other}).backward();
    expect_gradient(3);
    try {
      const auto scaled = scale_loss(loss(), {one, other});
      throw std::runtime_error("before the backward");
    } catch (const std::runtime_error&) {
      expect_gradient(3);
    }
    {
      const auto guard = ddp.no_sync();
      scale_loss(loss(), {one, other}).backward();
    }
    scale_loss(loss(), {one, other}).backward();
    expect_gradient(6);
    EXPECT_TRUE(one.step().applied());
  }
});

TEST(Ranks, AWeightOfTwoOptimizersIsScaledOnce) {
  expect_all_pass("amp two optimizers of a weight");
}

}  // namespace
}  // namespace mezzo::amp
