// Gradients of several processes against those of one process on all of the data.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "mezzo/parallel.h"
#include "parallel/agreement.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::Gradients;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

struct OptionsCase {
  std::string name;
  DDPOptions options;
  double factor = 1;  // of the average
};

std::vector<OptionsCase> option_cases(const Branches& net) {
  std::vector<OptionsCase> cases;
  cases.push_back({"defaults", {}});
  cases.push_back({"one element per bucket", {.message_size = 1}});
  cases.push_back({"small buckets", {.message_size = 50}});
  cases.push_back({"delayed", {.delay_allreduce = true}});
  cases.push_back(
      {"triggers", {.allreduce_trigger_params = {net->left->weight, net->first->bias}}});
  cases.push_back({"retained buffers", {.message_size = 60, .retain_allreduce_buffers = true}});
  cases.push_back({"always float", {.message_size = 60, .allreduce_always_fp32 = true}});
  cases.push_back({"sum", {.gradient_average = false}, static_cast<double>(world_size())});
  cases.push_back({"predivided", {.gradient_predivide_factor = 4}});
  cases.push_back({"predivided sum",
                   {.gradient_average = false, .gradient_predivide_factor = 2},
                   world_size() / 2.0});
  cases.push_back({"streams", {.message_size = 30, .num_allreduce_streams = 3}});
  std::vector<int> everybody;
  for (int r = 0; r < world_size(); ++r) everybody.push_back(r);
  cases.push_back({"communicators",
                   {.message_size = 30,
                    .num_allreduce_streams = 2,
                    .allreduce_communicators = {new_group(everybody), new_group(everybody)}}});
  cases.push_back({"no unused", {.find_unused_parameters = false}});
  cases.push_back({"no buffers", {.broadcast_buffers = false}});
  return cases;
}

void expect_same_sum_of_squares(const Gradients& a, const Gradients& b) {
  const auto sum_of = [](const Gradients& all) {
    double sum = 0;
    for (const at::Tensor& one : all) sum += one.to(at::kDouble).square().sum().item<double>();
    return sum;
  };
  const double expected = sum_of(b);
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(sum_of(a), expected, 1e-12 * expected);
}

const Rank kOptions("ddp options", [] {
  start();
  Branches single = net_of(1);
  for (const OptionsCase& one : option_cases(net_of(1))) {
    at(one.name);
    Branches net = net_of(static_cast<unsigned>(1 + 10 * rank()));
    DDPOptions options = one.options;
    if (!options.allreduce_trigger_params.empty())
      options.allreduce_trigger_params = {net->left->weight, net->first->bias};
    DistributedDataParallel ddp(net, options);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor all = batch_of(static_cast<unsigned>(100 + step), 4 * world_size());
      single->zero_grad();
      loss_of(single->forward(all)).mul(one.factor).backward();
      if (step == 2) {
        ddp.zero_grad();
      } else {
        net->zero_grad();
      }
      loss_of(ddp(own_rows(all))).backward();
      expect_equal(gradients_of(net), gradients_of(single), one.name);
      expect_same_on_all_ranks(gradients_of(net), one.name);
      EXPECT_TRUE(is_bucket_view(net->first->weight.grad()));
      for (const at::Tensor& parameter : net->parameters()) {
        EXPECT_EQ(parameter.grad().storage_offset() % 16, 0) << one.name;
      }
      EXPECT_TRUE(
          spread_by_reduction({net->first->weight.grad(), net->last->bias.grad()}, world()));
      if (one.options.retain_allreduce_buffers) {
        EXPECT_FALSE(ddp.allreduce_buffers().empty());
        // Nothing but zeros lies between gradients.
        expect_same_sum_of_squares(ddp.allreduce_buffers(), gradients_of(net));
      } else {
        EXPECT_THROW(ddp.allreduce_buffers(), ConfigError);
      }
    }
    const DDPStatistics counts = ddp.statistics();
    EXPECT_EQ(counts.reductions, 3);
    // The first two steps brought gradients of autograd's own, the last one added in place.
    std::int64_t bytes = 0;
    for (const auto& p : net->parameters()) bytes += static_cast<std::int64_t>(p.nbytes());
    EXPECT_EQ(counts.copied_bytes, 2 * bytes);
    EXPECT_EQ(ddp->named_buffers()["seen"].item<float>(), 12);
  }
});

TEST(DistributedDataParallel, GivesOneProcessesGradientsWithEveryOption) {
  expect_all_pass("ddp options", {.ranks = 2});
  expect_all_pass("ddp options", {.ranks = 4});
}

torch::nn::Sequential random_net(unsigned seed, at::ScalarType type) {
  torch::manual_seed(seed);
  std::mt19937 random(seed);
  torch::nn::Sequential net;
  std::int64_t width = 3;
  const int layers = 1 + static_cast<int>(random() % 5);
  for (int i = 0; i < layers; ++i) {
    const auto next = 1 + static_cast<std::int64_t>(random() % 30);
    net->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(width, next).bias(random() % 2 == 0)));
    if (random() % 2 == 0) net->push_back(torch::nn::Tanh());
    if (random() % 4 == 0)
      net->push_back(
          torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<std::int64_t>{next})));
    width = next;
  }
  net->to(type);
  return net;
}

double largest_error(const std::vector<at::Tensor>& mine, const std::vector<at::Tensor>& exact) {
  double error = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const at::Tensor difference = mine[i].grad().to(at::kDouble) - exact[i].grad();
    error = std::max(error, difference.abs().max().item<double>());
  }
  return error;
}

double largest(const std::vector<at::Tensor>& exact) {
  double value = 0;
  for (const at::Tensor& one : exact)
    value = std::max(value, one.grad().abs().max().item<double>());
  return value;
}

const Rank kRandom("ddp random models", [] {
  start();
  double worst = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    torch::nn::Sequential exact = random_net(seed, at::kDouble);
    for (const auto type : {at::kDouble, at::kFloat}) {
      std::mt19937 random(seed);
      torch::nn::Sequential single = random_net(seed, type);
      torch::nn::Sequential net = random_net(seed, type);
      DistributedDataParallel ddp(net,
                                  {.message_size = 1 + static_cast<std::int64_t>(random() % 600),
                                   .delay_allreduce = random() % 5 == 0});
      const at::Tensor all = torch::randn({2 * world_size(), 3}, at::kDouble).to(type);
      for (int step = 0; step < 2; ++step) {
        exact->zero_grad();
        single->zero_grad();
        net->zero_grad(random() % 2 == 0);
        exact->forward(all.to(at::kDouble)).square().mean().backward();
        single->forward(all).square().mean().backward();
        ddp(own_rows(all)).square().mean().backward();
        // A normalisation over one element multiplies what rounding left of a difference by 316: in
        // float one process is as far from the truth as two, and that is the measure.
        const double scale = 1 + largest(exact->parameters());
        const double allowed =
            type == at::kDouble
                ? 1e-10 * scale
                : 4 * largest_error(single->parameters(), exact->parameters()) + 2e-6 * scale;
        const double error = largest_error(net->parameters(), exact->parameters());
        ASSERT_LE(error, allowed) << "seed " << seed << ", " << type << ", step " << step;
        worst = std::max(worst, error / allowed);
      }
    }
  }
  at("worst share of what is allowed: " + std::to_string(worst));
});

TEST(DistributedDataParallel, HoldsForTwoHundredRandomModels) {
  expect_all_pass("ddp random models", {.ranks = 2, .limit = std::chrono::seconds(120)});
}

const Rank kNan("ddp nan", [] {
  start();
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 50});
  at::Tensor x = batch_of(1, 4);
  if (rank() == 1) x[0][0] = std::numeric_limits<float>::quiet_NaN();
  loss_of(ddp(x)).backward();
  EXPECT_TRUE(net->first->weight.grad().isnan().any().item<bool>());
  EXPECT_TRUE(spread_by_reduction({net->first->weight.grad()}, world()));
});

TEST(DistributedDataParallel, ANanOfOneRankReachesAll) {
  expect_all_pass("ddp nan", {.ranks = 3});
}

const Rank kSameBits("ddp same bits", [] {
  start();
  std::ofstream file(std::string(std::getenv("BITS_FILE")) + std::to_string(rank()),
                     std::ios::binary);
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    Branches net = net_of(5, type);
    DistributedDataParallel ddp(net, {.message_size = 60, .num_allreduce_streams = 2});
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    for (unsigned step = 0; step < 20; ++step) {
      ddp.zero_grad();
      loss_of(ddp(own_rows(batch_of(step, 8 * world_size(), type)), true, step % 3 != 0))
          .backward();
      optimizer.step();
    }
    for (const auto& p : net->parameters()) {
      file.write(static_cast<const char*>(p.const_data_ptr()),
                 static_cast<std::streamsize>(p.nbytes()));
    }
  }
});

TEST(DistributedDataParallel, TwoRunsGiveTheSameBitsOnAllRanks) {
  std::set<std::string> contents;
  const std::string path = testing::TempDir() + "mezzo_bits_" + std::to_string(getpid()) + "_";
  for (int run = 0; run < 2; ++run) {
    expect_all_pass("ddp same bits", {.ranks = 4, .environment = {{"BITS_FILE", path}}});
    for (int r = 0; r < 4; ++r) {
      std::ifstream file(path + std::to_string(r), std::ios::binary);
      contents.emplace(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
      std::filesystem::remove(path + std::to_string(r));
    }
  }
  EXPECT_EQ(contents.size(), 1U);
  EXPECT_GT(contents.begin()->size(), 1000U);
}

}  // namespace
}  // namespace mezzo::parallel
