// The refusals of DistributedDataParallel, and how it words them on every rank.
#include <gmock/gmock.h>

#include <cmath>

#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::expect_all_pass;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kDifferences("ddp differences", [] {
  start();
  const bool odd = rank() == 1;
  const auto says = [&](torch::nn::Sequential net, const DDPOptions& options = {}) {
    try {
      DistributedDataParallel ddp(net, options);
      return std::string("nothing was thrown");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  using torch::nn::Linear;
  using torch::nn::Sequential;
  EXPECT_THAT(says(Sequential(Linear(3, odd ? 4 : 5))),
              HasSubstr("rank 0 has 'parameter 0.weight Float [5, 3] ' where rank 1 has 'parameter "
                        "0.weight Float [4, 3] '"));
  EXPECT_THAT(
      says(odd ? Sequential(Linear(3, 3), torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})))
               : Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})), Linear(3, 3))),
      HasSubstr("rank 0 has 'parameter 0.weight Float [3] '"));
  EXPECT_THAT(says(odd ? Sequential(Linear(3, 3), Linear(3, 3)) : Sequential(Linear(3, 3))),
              HasSubstr("rank 0 has 'nothing more' where rank 1 has 'parameter 1.weight"));
  Sequential low(Linear(2, 2));
  if (odd) low->to(at::kHalf);
  EXPECT_THAT(says(low), HasSubstr("Half"));
  EXPECT_THAT(says(Sequential(Linear(3, 3)), {.message_size = odd ? 10 : 20}),
              HasSubstr("rank 0 has 'message_size = 20' where rank 1 has 'message_size = 10'"));
  EXPECT_EQ(says(Sequential(Linear(3, 3))), "nothing was thrown");
});

TEST(DistributedDataParallel, NamesWhatDiffersBetweenRanks) {
  expect_all_pass("ddp differences", {.ranks = 3});
}

const Rank kRefused("ddp refused options", [] {
  start();
  torch::nn::Linear net(2, 2);
  const at::Tensor stranger = torch::ones({1}, torch::requires_grad());
  const auto wrap = [](auto module, const DDPOptions& options) {
    DistributedDataParallel ddp(module, options);
  };
  for (const DDPOptions& options : std::vector<DDPOptions>{
           {.message_size = 0},
           {.delay_allreduce = true, .allreduce_trigger_params = {net->weight}},
           {.allreduce_trigger_params = {stranger}},
           {.gradient_predivide_factor = 0},
           {.gradient_predivide_factor = std::nan("")},
           {.num_allreduce_streams = 0},
           {.delay_allreduce = true, .num_allreduce_streams = 2},
           {.num_allreduce_streams = 1, .allreduce_communicators = {world()}},
           {.num_allreduce_streams = 3, .allreduce_communicators = {world(), world()}}}) {
    EXPECT_THROW(wrap(net, options), ConfigError);
  }
  EXPECT_THROW(wrap(torch::nn::ReLU(), {}), ConfigError);
  DistributedDataParallel strict(net, {.find_unused_parameters = false});
  try {
    strict(torch::ones({1, 2})).detach().set_requires_grad(true).sum().backward();
    net->weight.sum().backward();
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'bias'"));
  }
  torch::nn::Embedding sparse(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  DistributedDataParallel ddp(sparse);
  EXPECT_THROW(ddp(torch::zeros({1}, at::kLong)).sum().backward(), UnsupportedError);
});

TEST(DistributedDataParallel, RefusesImpossibleOptions) {
  expect_all_pass("ddp refused options");
}

}  // namespace
}  // namespace mezzo::parallel
