// Gradients that several processes average, cleared by whoever holds them, or left where no master
// would find them.
#include <gmock/gmock.h>

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <limits>

#include "amp/training.h"
#include "mezzo/checkpoint.h"
#include "mezzo/fp16_utils.h"
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

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
    return "nothing was thrown";
  } catch (const Error& e) {
    return e.what();
  }
}

struct ClearingTraining {
  explicit ClearingTraining(const std::string& level) : sgd(net->parameters(), 0.125) {
    auto made = initialize(net, sgd, at_level(level));
    model.emplace(made.first);
    optimizer.emplace(made.second);
    ddp.emplace(*model);
  }
  at::Tensor loss(double factor = 1) const { return (*ddp)(row(factor + rank())).sum(); }
  void backward(double factor = 1) { scale_loss(loss() * factor, *optimizer).backward(); }

  Line net;
  torch::optim::SGD sgd;
  std::optional<Model<Line>> model;
  std::optional<Optimizer> optimizer;
  std::optional<parallel::DistributedDataParallel<Model<Line>>> ddp;
};

/// The master after steps before each of which gradients of some kind were cleared.
at::Tensor trained(const std::string& level, const std::function<void(ClearingTraining&)>& clear) {
  ClearingTraining training(level);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (int step = 0; step < 4; ++step) {
    clear(training);
    if (step == 1) {
      // An overflow that is dropped skips nothing.
      training.backward(rank() == 1 ? kInf : 1.0);
      clear(training);
    }
    if (step == 2) {
      const auto guard = training.ddp->no_sync();
      training.backward();
      clear(training);
    }
    training.backward();
    EXPECT_TRUE(training.optimizer->step().applied()) << level << " step " << step;
  }
  return master_params(*training.optimizer)[0].detach().clone();
}

const Rank kCleared("amp gradients cleared by the wrapper", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O5"}) {
    at(level);
    const at::Tensor expected =
        trained(level, [](ClearingTraining& t) { t.optimizer->zero_grad(); });
    using Clear = std::function<void(ClearingTraining&)>;
    for (const Clear& clear :
         {Clear([](ClearingTraining& t) { t.ddp->zero_grad(); }),
          Clear([](ClearingTraining& t) { (*t.ddp)->zero_grad(/*set_to_none=*/false); }),
          Clear([](ClearingTraining& t) { (*t.model)->zero_grad(); })}) {
      const at::Tensor got = trained(level, clear);
      EXPECT_TRUE(torch::equal(got, expected)) << level << '\n' << got << '\n' << expected;
    }
  }
});

TEST(Ranks, TheWrappersZeroGradClearsWhatTheOptimizersDoes) {
  expect_all_pass("amp gradients cleared by the wrapper");
}

const Rank kShown("amp gradients shown beside buckets", [] {
  start();
  for (const std::string level : {"O2", "O5"}) {
    at(level);
    ClearingTraining training(level);
    at::Tensor weight = training.net->line->weight;
    const at::Tensor master = master_params(*training.optimizer)[0];
    at::Tensor expected = master.detach().clone();
    for (int step = 0; step < 3; ++step) {
      training.optimizer->zero_grad();
      training.backward();
      weight.mutable_grad().reset();  // by hand
      training.backward();
      ASSERT_TRUE(weight.grad().is_same(master.grad())) << level;
      // The step of the average over two ranks.
      EXPECT_TRUE(torch::allclose(weight.grad(), row(1.5), 1e-2)) << level << weight.grad();
      weight.mutable_grad().mul_(0.5);
      expected -= 0.125 * 0.5 * row(1.5);
      EXPECT_TRUE(training.optimizer->step().applied());
      EXPECT_TRUE(torch::allclose(master, expected, 1e-2, 1e-2)) << level << master << expected;
    }
  }
});

TEST(Ranks, WeightsWhoseGradientsLieInBucketsShowTheAverage) {
  expect_all_pass("amp gradients shown beside buckets");
}

const Rank kPlain("amp plain backwards", [] {
  start();
  for (const std::string level : {"O2", "O5"}) {
    for (const bool sets_to_none : {true, false}) {
      at(level);
      ClearingTraining training(level);
      const auto refuses = [&] {
        training.loss().backward();
        EXPECT_THAT(error_of([&] { training.optimizer->step(); }),
                    HasSubstr("'line.weight' has a gradient from a plain backward()"));
        training.optimizer->zero_grad(sets_to_none);
      };
      const auto steps = [&] {
        training.backward();
        EXPECT_TRUE(training.optimizer->step().applied());
      };
      refuses();
      steps();
      training.optimizer->zero_grad(sets_to_none);
      // As well after a scope, whose gradients were taken or cleared.
      for (const bool clears : {true, false}) {
        training.backward();
        if (clears) training.optimizer->zero_grad(sets_to_none);
        refuses();
      }
      refuses();
      steps();
      // Once more by the gradients that are there, as ever.
      EXPECT_TRUE(training.optimizer->step().applied());
    }
  }
});

TEST(Ranks, AGradientThatItsMasterWouldMissIsAnError) {
  expect_all_pass("amp plain backwards");
}

const Rank kTwo("amp two wrappers cleared one by one", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    at(level);
    Line first;
    Line second;
    std::vector<at::Tensor> parameters{first->line->weight, second->line->weight};
    torch::optim::SGD sgd(parameters, 0.125);
    auto [models, optimizer] = initialize(std::tie(first, second), sgd, at_level(level));
    const parallel::DistributedDataParallel one(std::get<0>(models));
    const parallel::DistributedDataParallel two(std::get<1>(models));
    const auto backward = [&, &optimizer = optimizer](double factor) {
      scale_loss((one(row()).sum() + two(row()).sum()) * factor, optimizer).backward();
    };
    backward(1);
    optimizer.step();
    backward(std::numeric_limits<double>::infinity());
    one.zero_grad();
    two.zero_grad();
    backward(1);
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
});

TEST(Ranks, AnOverflowThatTwoWrappersClearOneByOneSkipsNothing) {
  expect_all_pass("amp two wrappers cleared one by one");
}

const Rank kAlone("amp checkpoint of several goes on alone", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    at(level);
    ClearingTraining training(level);
    training.backward();
    EXPECT_TRUE(training.optimizer->step().applied());
    const std::string path = testing::TempDir() + "mezzo_alone_" + std::to_string(::getpid());
    save_checkpoint(path, *training.model, *training.optimizer);

    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    load_checkpoint(path, model, optimizer);
    std::remove(path.c_str());
    EXPECT_TRUE(torch::equal(master_params(optimizer)[0], master_params(*training.optimizer)[0]));
    optimizer.step();  // with the gradient that was there
    scale_loss(model(row()).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
});

TEST(Ranks, ACheckpointOfSeveralGoesOnAlone) {
  expect_all_pass("amp checkpoint of several goes on alone");
}

const Rank kOwn("fp16 optimizer and backwards of one's own", [] {
  start();
  Line net;
  net->to(at::kHalf);
  torch::optim::SGD sgd(net->parameters(), 0.125);
  fp16_utils::FP16_Optimizer optimizer(sgd, {.static_loss_scale = 128});
  const parallel::DistributedDataParallel ddp(net);
  const auto loss = [&] { return ddp(row(1 + rank()).to(at::kHalf)).sum().to(at::kFloat); };
  const auto own_backward = [&] { (loss() * 128).backward(); };
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    own_backward();
    EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("call update_master_grads()"));
    optimizer.update_master_grads();
    const at::Tensor& gradient = sgd.param_groups()[0].params()[0].grad();
    EXPECT_TRUE(torch::allclose(gradient, row(1.5), 1e-3)) << gradient;
    optimizer.step();
    own_backward();
    EXPECT_THAT(error_of([&] { optimizer.update_master_grads(); }),
                HasSubstr("added to gradients that were unscaled already"));
  }
});

TEST(Ranks, AnFP16OptimizerMissesNoBackwardOfOnesOwn) {
  expect_all_pass("fp16 optimizer and backwards of one's own");
}

}  // namespace
}  // namespace mezzo::amp
