#include <gmock/gmock.h>

#include "mezzo/process_group.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::expect_all_pass;
using testing_ranks::expect_all_report;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kReducedGradients("reducer gradients", [] {
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
  const at::Tensor sparse = torch::eye(3).to_sparse();
  EXPECT_THROW(Reducer({sparse}), UnsupportedError);
  EXPECT_THROW(all_reduce_average({sparse}), UnsupportedError);
  EXPECT_THROW(broadcast_all({sparse}), UnsupportedError);
  EXPECT_THROW(broadcast_all({at::Tensor()}), ConfigError);
});

const Rank kOtherType("reducer gradients of another type", [] {
  start();
  const at::Tensor a = torch::ones({3}, torch::requires_grad());
  const at::Tensor b = torch::ones({2}, torch::requires_grad());
  Reducer reducer({a, b});
  // A gradient of another type than the parameter, on one rank alone.
  a.set_grad_dtype(std::nullopt);
  if (rank() == 0) a.mutable_grad() = torch::full({3}, 3.0, at::kHalf);
  b.mutable_grad() = torch::full({2}, 1e-6F * static_cast<float>(rank()));
  reducer.reduce();
  EXPECT_EQ(a.grad()[0].item<float>(), 1.5);
  EXPECT_FLOAT_EQ(b.grad()[1].item<float>(), 0.5e-6F);
});

TEST(Reducer, TakesGradientsOfAnotherTypeThanTheirParameters) {
  expect_all_pass("reducer gradients of another type");
}

const Rank kFrozenReduced("reducer frozen parameters", [] {
  // The average of three equal weights need not be the weight.
  start();
  const at::Tensor a = torch::full({3}, 0.1, torch::requires_grad());
  const at::Tensor b = torch::full({2}, 0.7, torch::requires_grad());
  Reducer reducer({a, b});
  const at::Tensor weights = a.detach().clone();
  a.set_requires_grad(false);
  if (rank() == 0) b.set_requires_grad(false);
  b.mutable_grad() = torch::full({2}, 3.0F * static_cast<float>(rank()));
  reducer.reduce();
  EXPECT_TRUE(torch::equal(a, weights));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(b[0].item<float>(), 0.7F);
  EXPECT_EQ(b.grad()[0].item<float>(), 3);
  // A gradient that is left is averaged, as long as it is there.
  a.mutable_grad() = torch::full({3}, static_cast<float>(rank()));
  reducer.reduce();
  EXPECT_EQ(a.grad()[1].item<float>(), 1);
  EXPECT_TRUE(torch::equal(a, weights));
});

TEST(Reducer, LeavesTheWeightsOfFrozenParametersAlone) {
  expect_all_pass("reducer frozen parameters", {.ranks = 3});
}

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
