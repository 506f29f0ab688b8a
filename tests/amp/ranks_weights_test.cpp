// Writes of several processes to the weights: collectives write them, averaged gradients step them.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "amp/training.h"
#include "mezzo/optim.h"
#include "mezzo/parallel.h"
#include "parallel/agreement.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::world;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;
using testing::HasSubstr;

struct Way {
  std::string name;
  std::function<void(const at::Tensor&)> write;
};

/// Every way in which a collective writes a tensor in place.
std::vector<Way> ways() {
  using parallel::ReduceOp;
  const auto reduced = [](ReduceOp op) {
    return [op](const at::Tensor& weight) { world().all_reduce(weight, op); };
  };
  return {
      {"broadcast", [](const at::Tensor& weight) { world().broadcast(weight, 1); }},
      {"sum", reduced(ReduceOp::kSum)},
      {"average", reduced(ReduceOp::kAverage)},
      {"maximum", reduced(ReduceOp::kMax)},
      {"minimum", reduced(ReduceOp::kMin)},
      {"broadcast_all", [](const at::Tensor& weight) { parallel::broadcast_all({weight}, 1); }},
      {"all_reduce_average",
       [](const at::Tensor& weight) { parallel::all_reduce_average({weight}); }},
      {"Reducer", [](const at::Tensor& weight) { parallel::Reducer({weight}); }},
  };
}

/// A line whose weights are `factor` times those of every other: exact in every type.
Line line_of(double factor) {
  Line net;
  const torch::NoGradGuard no_grad;
  net->line->weight.mul_(factor);
  return net;
}

const Rank kWrites("amp collectives write weights", [] {
  start();
  for (const std::string level : {"O1", "O4"}) {
    for (const Way& way : ways()) {
      for (const bool frozen : {false, true}) {
        at(level + ' ' + way.name + (frozen ? " frozen" : ""));
        const Line net = line_of(1 + 2 * rank());
        auto model = initialize(net, at_level(level));
        const at::Tensor& weight = net->line->weight;
        for (const bool recorded : {true, false}) {
          const torch::AutoGradMode mode(recorded);
          model(row());
        }
        weight.set_requires_grad(!frozen);
        for (int turn = 0; turn < 2; ++turn) {
          {
            const torch::NoGradGuard no_grad;
            model(row());
            way.write(weight);
          }
          for (const bool recorded : {true, false}) {
            const torch::AutoGradMode mode(recorded);
            EXPECT_EQ(model(row()).item<float>(), (weight.detach() * row()).sum().item<float>())
                << level << ' ' << way.name << " frozen " << frozen << " turn " << turn;
          }
          const torch::NoGradGuard no_grad;
          weight.mul_(0.5 + rank());
        }
      }
    }
  }
});

TEST(Ranks, WhatACollectiveWritesIntoAWeightIsCastAgain) {
  expect_all_pass("amp collectives write weights");
}

/// A matrix that takes gradients but is registered as a buffer.
struct MixImpl : torch::nn::Module {
  MixImpl()
      : line(register_module("line", Line())),
        mix(register_buffer("mix", torch::eye(3).requires_grad_())) {}
  at::Tensor forward(const at::Tensor& x) { return line(torch::matmul(x, mix)); }
  Line line;
  at::Tensor mix;
};
TORCH_MODULE(Mix);

const Rank kBuffers("amp buffers that take gradients", [] {
  start();
  Mix net;
  auto model = initialize(net, at_level("O1"));
  const parallel::DistributedDataParallel ddp(model);
  const float before = ddp(row()).item<float>();
  for (int turn = 1; turn < 3; ++turn) {
    if (rank() == 0) {
      const torch::NoGradGuard no_grad;
      net->mix.mul_(2);
    }
    EXPECT_EQ(ddp(row()).item<float>(), before * static_cast<float>(1 << turn));
  }
});

TEST(Ranks, ABufferThatTakesGradientsFollowsRankZeroUnderCasts) {
  expect_all_pass("amp buffers that take gradients");
}

const Rank kMasters("amp masters take what was broadcast", [] {
  start();
  for (const std::string level : {"O1", "O2", "O5"}) {
    Line net = line_of(1 + 2 * rank());
    torch::optim::SGD sgd(net->parameters(), 0.125);
    Options options = at_level(level);
    options.verbosity = 1;
    Listener listener;
    auto [model, optimizer] = initialize(net, sgd, options);
    const at::Tensor expected = line_of(3)->line->weight.detach().clone();
    for (int step = 0; step < 2; ++step) {
      if (step == 0) {
        const torch::NoGradGuard no_grad;
        world().broadcast(net->line->weight, 1);
      }
      optimizer.zero_grad();
      scale_loss(model(row()).sum(), optimizer).backward();
      optimizer.step();
      expected.sub_(row() * 0.125);
      EXPECT_TRUE(torch::equal(master_params(optimizer)[0], expected)) << level << " step " << step;
    }
    EXPECT_EQ(listener.count("moved outside"), 0) << level << '\n' << listener.heard;
  }
});

TEST(Ranks, MastersTakeWhatACollectiveWroteIntoTheirWeights) {
  expect_all_pass("amp masters take what was broadcast");
}

/// The rows of a step for all ranks: small integers, so that gradients are exact in every type.
at::Tensor whole_numbers(int step, std::int64_t rows) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  return torch::randint(-2, 3, {rows, 3}, torch::kFloat);
}

at::Tensor own_rows(const at::Tensor& all) {
  const std::int64_t each = all.size(0) / parallel::world_size();
  return all.narrow(0, rank() * each, each);
}

Options deferred(const std::string& level) {
  Options options = at_level(level);
  options.loss_scale = "dynamic";
  options.defer_unscale = true;
  return options;
}

Options alone(Options options) {
  options.overflow_group = OverflowGroup::none();
  return options;
}

void expect_equal_ranks(const std::vector<at::Tensor>& tensors, const std::string& where) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = world().all_gather(tensor.detach().contiguous());
    for (int r = 1; r < parallel::world_size(); ++r) {
      ASSERT_TRUE(torch::equal(all[0], all[r])) << where;
    }
  }
}

constexpr std::int64_t kRows = 4;  // of each rank

/// Momentum over gradients that no type rounds: several ranks and one process agree to the last
/// bit. Step 2 overflows on rank 1, step 5 on all; step 4 accumulates over two batches.
void expect_exact(const std::string& level) {
  using optim::FusedSGD;
  const auto options = optim::FusedSGDOptions(0.125).momentum(0.5);
  Line together;
  Line single;
  FusedSGD shared(together->parameters(), options);
  FusedSGD own(single->parameters(), options);
  auto [model, optimizer] = initialize(together, shared, deferred(level));
  auto [reference, stepper] = initialize(single, own, alone(deferred(level)));
  const parallel::DistributedDataParallel ddp(model);
  std::int64_t copied = 0;
  std::int64_t collectives = 0;
  for (int step = 0; step < 8; ++step) {
    const std::string where = level + " step " + std::to_string(step);
    const at::Tensor all = whole_numbers(step, kRows * parallel::world_size());
    const bool here = step == 5 || (step == 2 && rank() == 1);
    const bool anywhere = step == 5 || step == 2;
    const std::int64_t before = world().counts().collectives;
    optimizer.zero_grad();
    stepper.zero_grad();
    if (step == 4) {
      const auto guard = ddp.no_sync();
      scale_loss(ddp(own_rows(all)).mean(), optimizer).backward();
      scale_loss(reference(all).mean(), stepper).backward();
    }
    scale_loss(ddp(own_rows(all)).mean() * (here ? kInf : 1), optimizer).backward();
    scale_loss(reference(all).mean() * (anywhere ? kInf : 1), stepper).backward();
    const StepResult result = optimizer.step();
    EXPECT_EQ(result.skipped(), anywhere) << where;
    EXPECT_EQ(stepper.step().skipped(), anywhere) << where;
    if (step == 2) {
      EXPECT_THAT(result.reason(), HasSubstr(" on rank 1, first in 'line.weight'"));
    }
    EXPECT_EQ(optimizer.loss_scale(), stepper.loss_scale()) << where;
    EXPECT_TRUE(torch::equal(master_params(optimizer)[0], master_params(stepper)[0]))
        << where << '\n'
        << master_params(optimizer)[0] << '\n'
        << master_params(stepper)[0];
    EXPECT_TRUE(torch::equal(together->line->weight, single->line->weight)) << where;
    EXPECT_TRUE(torch::equal(ddp(all), reference(all))) << where;
    // The gradients stay in their buckets.
    EXPECT_TRUE(parallel::is_bucket_view(together->line->weight.grad())) << where;
    if (step == 0) {
      copied = ddp.statistics().copied_bytes;
    } else {
      EXPECT_EQ(ddp.statistics().copied_bytes, copied) << where;
      collectives = std::max(collectives, world().counts().collectives - before);
    }
  }
  // The gradients, and the flag on which all ranks agree.
  EXPECT_EQ(collectives, 2) << level;
}

const Rank kExact("amp deferred and fused, exact", [] {
  start();
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    at(level);
    expect_exact(level);
  }
});

torch::nn::Sequential layers() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(3, 33), torch::nn::Tanh(),
                               torch::nn::Linear(33, 17), torch::nn::ReLU(),
                               torch::nn::Linear(17, 2));
}

/// A network whose gradients are rounded on the way: as near as the low type allows.
template <class Fused, class InnerOptions>
void expect_near_of_level(const std::string& level, const InnerOptions& options) {
  torch::nn::Sequential together = layers();
  torch::nn::Sequential single = layers();
  Fused shared(together->parameters(), options);
  Fused own(single->parameters(), options);
  auto [model, optimizer] = initialize(together, shared, deferred(level));
  auto [reference, stepper] = initialize(single, own, alone(deferred(level)));
  const parallel::DistributedDataParallel ddp(model, {.message_size = 100});
  const double unit = level == "O1" || level == "O2" ? 0x1p-11 : 0x1p-8;
  double worst = 0;
  for (int step = 0; step < 8; ++step) {
    const std::string where = level + " step " + std::to_string(step);
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const at::Tensor all = torch::randn({16 * parallel::world_size(), 3});
    const bool here = step == 3 && rank() == 0;
    optimizer.zero_grad();
    stepper.zero_grad();
    scale_loss(ddp(own_rows(all)).square().mean() * (here ? kInf : 1), optimizer).backward();
    scale_loss(reference(all).square().mean() * (step == 3 ? kInf : 1), stepper).backward();
    EXPECT_EQ(optimizer.step().skipped(), step == 3) << where;
    EXPECT_EQ(stepper.step().skipped(), step == 3) << where;
    EXPECT_EQ(optimizer.loss_scale(), stepper.loss_scale()) << where;
    for (std::size_t i = 0; i < master_params(optimizer).size(); ++i) {
      const at::Tensor error = master_params(optimizer)[i] - master_params(stepper)[i];
      worst = std::max(worst, error.abs().max().item<double>());
    }
    expect_equal_ranks(master_params(optimizer), where);
    expect_equal_ranks(together->parameters(), where);
  }
  double moved = 0;
  for (std::size_t i = 0; i < master_params(stepper).size(); ++i) {
    const at::Tensor way = master_params(stepper)[i] - layers()->parameters()[i];
    moved = std::max(moved, way.abs().max().item<double>());
  }
  EXPECT_GT(moved, 0.005) << level << ": nothing was learnt";
  EXPECT_LE(worst, 32 * unit * moved) << level;
}

const Rank kNear("amp deferred and fused, near", [] {
  start();
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    at(level);
    expect_near_of_level<optim::FusedSGD>(level, optim::FusedSGDOptions(0.1).momentum(0.5));
    // A large epsilon: else tiny gradients would count by their signs alone.
    expect_near_of_level<optim::FusedAdam>(level, optim::FusedAdamOptions(0.02).eps(0.1));
  }
});

TEST(Ranks, DeferredFusedStepsGiveTheWeightsOfOneProcess) {
  expect_all_pass("amp deferred and fused, exact");
  expect_all_pass("amp deferred and fused, exact", {.ranks = 4});
  expect_all_pass("amp deferred and fused, near");
}

}  // namespace
}  // namespace mezzo::amp
