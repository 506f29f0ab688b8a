#include <gmock/gmock.h>

#include "distributed/several.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::expect_all_pass;
using testing_ranks::expect_all_report;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kGradients("reducer gradients", [] {
  start();
  torch::manual_seed(rank());
  torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::ReLU(), torch::nn::Linear(7, 3));
  Reducer reducer(net->parameters());
  const at::Tensor weights = world().all_gather(net->parameters()[0]);
  EXPECT_TRUE(torch::equal(weights[0], weights[world_size() - 1]));

  torch::manual_seed(99);
  const at::Tensor all = torch::randn({world_size() * 4, 5});
  net->forward(all).square().mean().backward();
  std::vector<at::Tensor> expected;
  for (const auto& p : net->parameters()) expected.push_back(p.grad().clone());
  net->zero_grad();
  net->forward(all.narrow(0, rank() * 4, 4)).square().mean().backward();
  reducer.reduce();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), expected[i], 1e-5, 1e-7));
  }
});

const Rank kMissing("reducer missing gradients", [] {
  start();
  const at::Tensor a = torch::ones({3}, torch::requires_grad());
  const at::Tensor b = torch::ones({2}, torch::dtype(at::kHalf).requires_grad(true));
  const at::Tensor c = torch::ones({2}, torch::requires_grad());
  Reducer reducer({a, b, c});
  if (rank() == 1) a.mutable_grad() = torch::full({3}, 4.0);
  b.mutable_grad() = torch::full({2}, 40000.0, at::kHalf);
  reducer.reduce();
  EXPECT_EQ(a.grad()[0].item<float>(), 2);
  EXPECT_EQ(b.grad()[1].item<float>(), 40000);
  EXPECT_FALSE(c.grad().defined());
});

const Rank kTensors("reducer tensors", [] {
  start();
  const at::Tensor a = torch::full({3, 2}, rank(), at::kFloat).t();
  const at::Tensor b = torch::full({2}, rank(), at::kDouble);
  Reducer({a, b}).reduce();
  EXPECT_EQ(a[1][2].item<float>(), 0.5);
  EXPECT_EQ(b[1].item<double>(), 0.5);
  all_reduce_average({a.fill_(rank())});
  EXPECT_EQ(a[0][0].item<float>(), 0.5);
  broadcast_all({a.fill_(rank() + 1)}, 1);
  EXPECT_EQ(a[0][0].item<float>(), 2);
  EXPECT_THROW(Reducer({torch::ones({1}, at::kInt)}), ConfigError);
  EXPECT_THROW(Reducer({at::Tensor()}), ConfigError);
});

TEST(Reducer, AveragesGradientsAndStartsFromRankZerosWeights) {
  expect_all_pass("reducer gradients");
  expect_all_pass("reducer gradients", {.ranks = 4});
}

TEST(Reducer, CountsAMissingGradientAsZero) {
  expect_all_pass("reducer missing gradients");
}

TEST(Reducer, AveragesPlainTensors) {
  expect_all_pass("reducer tensors");
}

const Rank kDifferent("reducer different shapes", [] {
  start();
  Reducer reducer({torch::ones({rank() + 1})});
});

TEST(Reducer, RefusesListsThatDifferBetweenRanks) {
  expect_all_report("reducer different shapes",
                    "rank 0 has 'tensor 0 Float [1]' where rank 1 has 'tensor 0 Float [2]'");
}

}  // namespace
}  // namespace mezzo::parallel
