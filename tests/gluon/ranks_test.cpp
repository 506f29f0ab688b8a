// Trainers of several processes.
#include <gmock/gmock.h>

#include <limits>

#include "gluon/judged.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::gluon {
namespace {

using parallel::rank;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The judge's training with the batch cut in two: the same weights as in one process.
const Rank kSum("gluon sums", [] {
  start();
  JudgedNet net, whole;
  if (rank() == 1) {
    const torch::NoGradGuard no_grad;
    net->a->weight.zero_();  // rank 0's weights count
  }
  const OptimizerParams params{{"learning_rate", 0.1}, {"momentum", 0.9}, {"wd", 0.01}};
  Trainer trainer(*net, "sgd", params);
  torch::optim::SGD reference(whole->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  for (int step = 0; step < 6; ++step) {
    trainer.zero_grad();
    judged_losses(net, step).slice(0, 6 * rank(), 6 * rank() + 6).sum().backward();
    if (step % 2 == 0) {
      trainer.step(12);
    } else {
      trainer.allreduce_grads();
      trainer.update(12);
    }
    reference.zero_grad();
    judged_losses(whole, step).mean().backward();
    reference.step();
    EXPECT_TRUE(torch::allclose(all_weights(*net), all_weights(*whole), 1e-5, 1e-6)) << step;
  }
});

TEST(GluonRanks, SumGradientsAndShareTheFirstWeights) {
  expect_all_pass("gluon sums");
}

const Rank kSkip("gluon skips", [] {
  start();
  const auto handle = init();
  JudgedNet net;
  Trainer trainer(*net, "sgd", {{"learning_rate", 0.1}});
  init_trainer(trainer, {.init_scale = 1024});
  const Messages messages;
  const at::Tensor before = all_weights(*net);
  scale_loss(judged_losses(net, 0).sum() * (rank() == 1 ? kInf : 1.0), trainer).backward();
  trainer.step(12);
  EXPECT_TRUE(trainer.last_step_skipped());
  EXPECT_EQ(trainer.loss_scale(), 512);
  EXPECT_TRUE(torch::equal(all_weights(*net), before));
  // Without a sum before it, the flag is agreed all the same.
  trainer.zero_grad();
  scale_loss(judged_losses(net, 0).sum() * (rank() == 0 ? kInf : 1.0), trainer).backward();
  trainer.update(12);
  EXPECT_TRUE(trainer.last_step_skipped());
  EXPECT_EQ(trainer.loss_scale(), 256);
});

TEST(GluonRanks, SkipTogether) {
  expect_all_pass("gluon skips");
}

const Rank kStale("gluon leaves out", [] {
  start();
  JudgedNet net;
  Trainer trainer(*net, "sgd", {{"learning_rate", 1}});
  // Each rank reaches other parameters; the first layer's weight is reached by rank 0 alone.
  trainer.zero_grad();
  if (rank() == 0) {
    judged_losses(net, 0).sum().backward();
  } else {
    net->b(torch::ones({1, 6})).sum().backward();
  }
  const at::Tensor before = net->a->weight.detach().clone();
  trainer.step(1, /*ignore_stale_grad=*/true);
  EXPECT_FALSE(torch::equal(net->a->weight, before));
  const at::Tensor mine = all_weights(*net), first = mine.clone();
  parallel::world().broadcast(first);
  EXPECT_TRUE(torch::equal(mine, first));
});

TEST(GluonRanks, UpdateWhatAnyOfThemReached) {
  expect_all_pass("gluon leaves out");
}

}  // namespace
}  // namespace mezzo::gluon
