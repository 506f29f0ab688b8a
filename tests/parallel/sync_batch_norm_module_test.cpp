// SyncBatchNorm as a module: what it refuses, its state, and itself in print.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "mezzo/parallel.h"
#include "mezzo/sync_batch_norm.h"
#include "parallel/near.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_near;
using testing_ranks::Rank;
using testing_ranks::start;
using ModuleSizes = std::vector<std::int64_t>;

const Rank kErrors("sync batch norm errors", [] {
  start();
  const auto says = [](const auto& work) -> std::string {
    try {
      work();
      return "nothing was thrown";
    } catch (const Error& e) {
      return e.what();
    }
  };
  SyncBatchNorm norm(3);
  at("one element");
  const std::string one = says([&] { (void)norm(torch::randn({rank() == 0 ? 1 : 0, 3})); });
  EXPECT_THAT(one, HasSubstr("one element per channel together"));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
  EXPECT_EQ(norm->running_mean.abs().max().item<float>(), 0);
  at("all empty");
  EXPECT_EQ(norm(torch::randn({0, 3, 2})).numel(), 0);
  EXPECT_EQ(norm->running_var[0].item<float>(), 1);
  at("one rank without a graph");
  at::Tensor y;
  const at::Tensor x = torch::randn({4, 3}).requires_grad_(true);
  if (rank() == 1) {
    const at::NoGradGuard no_grad;
    y = norm(x);
  } else {
    y = norm(x);
    EXPECT_THAT(says([&] { y.sum().backward(); }), HasSubstr("rank 1"));
  }
  at("one rank wants a graph of its backward");
  const at::Tensor input = torch::randn({4, 3}).requires_grad_(true);
  const at::Tensor output = norm(input).square().sum();
  EXPECT_THAT(says([&] {
                (void)torch::autograd::grad({output}, {input}, {}, true,
                                            /*create_graph=*/rank() == 0);
              }),
              HasSubstr("1 of the ranks run this backward with create_graph and 1 without"));
  at("a join that does not hold all ranks of the statistics");
  const ProcessGroup first = new_group({0});
  if (rank() == 0) {
    torch::nn::Linear linear(3, 3);
    DistributedDataParallel ddp(linear, {.process_group = first});
    auto guard = ddp.join();
    EXPECT_THAT(says([&] { (void)norm(x); }), HasSubstr("inside join() over ranks 0"));
    guard.close();
  }
  at("end");
  barrier();
});

TEST(SyncBatchNorm, RefusesOnAllRanksWhatOneCannotDo) {
  expect_all_pass("sync batch norm errors");
}

TEST(SyncBatchNorm, IsBatchNormWithoutAProcessGroupToo) {
  torch::nn::BatchNorm2d native(6);
  SyncBatchNorm norm(6);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = torch::randn({4, 6, 5, 3});
    expect_near(norm(x), native(x).to(at::kDouble), 1e-5, "y");
  }
  expect_near(norm->running_var, native->running_var.to(at::kDouble), 1e-6, "running_var");
  // One's state is the other's.
  const std::string path = testing::TempDir() + "mezzo_sync_batch_norm_" + std::to_string(getpid());
  torch::save(norm, path);
  torch::nn::BatchNorm2d loaded(6);
  torch::load(loaded, path);
  EXPECT_TRUE(torch::equal(loaded->running_mean, norm->running_mean));
  EXPECT_EQ(loaded->num_batches_tracked.item<std::int64_t>(), 3);
  std::filesystem::remove(path);
}

TEST(SyncBatchNorm, TakesOneSampleInEvaluationAndPrintsItself) {
  SyncBatchNorm norm(SyncBatchNormOptions{.num_features = 4, .momentum = std::nullopt});
  EXPECT_THROW(norm(torch::randn({4})), ConfigError);
  norm->eval();
  EXPECT_EQ(norm(torch::ones({4})).sizes(), (ModuleSizes{4}));
  std::ostringstream text;
  text << norm;
  EXPECT_THAT(text.str(), HasSubstr("SyncBatchNorm(4, eps=1e-05, momentum=none"));
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  EXPECT_FALSE(copy->weight.is_same(norm->weight));
  torch::nn::Sequential net(torch::nn::Linear(3, 4), norm, torch::nn::ReLU());
  EXPECT_EQ(net->forward(torch::ones({2, 3})).size(1), 4);
}

TEST(SyncBatchNorm, RefusesWhatItCannotTake) {
  SyncBatchNorm norm(4);
  EXPECT_THROW(norm(at::Tensor()), ConfigError);
  EXPECT_THROW(norm(torch::ones({2, 3})), ConfigError);
  EXPECT_THROW(norm(torch::ones({2, 4}, at::kInt)), ConfigError);
  EXPECT_THROW(norm(torch::ones({2, 4, 1, 1, 1, 1})), ConfigError);
  EXPECT_THROW(norm(torch::ones({})), ConfigError);
  EXPECT_THROW(norm(torch::ones({2, 4}), torch::ones({2, 3})), ConfigError);
  EXPECT_THROW(SyncBatchNorm(0), ConfigError);
  EXPECT_THROW(SyncBatchNorm(SyncBatchNormOptions{.num_features = 1, .eps = -1}), ConfigError);
}

const Rank kKinds("sync batch norm kinds of ranks", [] {
  // One vector is one sample; a rank may want the gradients of the weights alone.
  start();
  torch::manual_seed(3);
  const at::Tensor all = torch::randn({world_size(), 5}, at::kDouble);
  const at::Tensor g = torch::randn({world_size(), 5}, at::kDouble);
  for (const bool inputs : {true, false}) {
    at(inputs ? "rank 0 wants its input's gradient" : "nobody wants one");
    const at::Tensor whole = all.clone().requires_grad_(true);
    const at::Tensor weight = torch::ones({5}, at::kDouble).requires_grad_(true);
    const at::Tensor bias = torch::zeros({5}, at::kDouble);
    (at::batch_norm(whole, weight, bias, {}, {}, true, 0.1, 1e-5, false) * g).sum().backward();

    SyncBatchNorm norm(5);
    norm->to(at::kDouble);
    norm->bias.set_requires_grad(false);
    const bool mine = inputs && rank() == 0;
    const at::Tensor x = all[rank()].clone().requires_grad_(mine);
    const at::Tensor y = norm(x);
    EXPECT_EQ(y.sizes(), (ModuleSizes{5}));
    const std::int64_t before = world().counts().collectives;
    (y * g[rank()]).sum().backward();
    EXPECT_EQ(world().counts().collectives - before, inputs ? 1 : 0);
    if (mine) expect_near(x.grad(), whole.grad()[rank()], 1e-10, "dx");
    EXPECT_FALSE(norm->bias.grad().defined());
    const at::Tensor dweight = norm->weight.grad().clone();
    world().all_reduce(dweight);
    expect_near(dweight, weight.grad(), 1e-10, "dweight");
    if (inputs) continue;
    at("a graph of the backward for one rank alone, where nothing travels");
    const at::Tensor loss = (norm(x).square() * g[rank()]).sum();
    const at::Tensor first =
        torch::autograd::grad({loss}, {norm->weight}, {}, true, rank() == 0).front();
    expect_near(first, 2 * (y.detach().square() * g[rank()]), 1e-10, "dweight once");
    EXPECT_EQ(first.requires_grad(), rank() == 0);
    if (rank() != 0) continue;
    const at::Tensor twice = torch::autograd::grad({first.sum()}, {norm->weight}).front();
    expect_near(twice, 2 * (y.detach().square() * g[rank()]), 1e-10, "dweight twice");
  }
});

TEST(SyncBatchNorm, TakesWhatEachRankWants) {
  expect_all_pass("sync batch norm kinds of ranks", {.ranks = 2});
  expect_all_pass("sync batch norm kinds of ranks", {.ranks = 3});
}

}  // namespace
}  // namespace mezzo::parallel
