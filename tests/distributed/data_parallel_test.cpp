// Gradients of several processes against those of one process on all of the data.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "distributed/agreement.h"
#include "distributed/branches.h"
#include "distributed/several.h"
#include "mezzo/parallel.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::BranchesImpl;
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
      EXPECT_TRUE(
          spread_by_reduction({net->first->weight.grad(), net->last->bias.grad()}, world()));
      if (one.options.retain_allreduce_buffers) {
        EXPECT_FALSE(ddp.allreduce_buffers().empty());
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

const Rank kPatterns("ddp patterns", [] {
  start();
  Branches single = net_of(1);
  Branches net = net_of(static_cast<unsigned>(1 + rank()));
  DistributedDataParallel ddp(net, {.message_size = 50});
  const auto whole = [&](unsigned seed) { return batch_of(seed, 4 * world_size()); };
  const auto clear = [&](bool none) {
    single->zero_grad(none);
    net->zero_grad(none);
  };
  at("unused everywhere");
  for (int step = 0; step < 2; ++step) {
    clear(true);
    loss_of(single->forward(whole(1), true, false)).backward();
    loss_of(ddp(own_rows(whole(1)), true, false)).backward();
    expect_equal(gradients_of(net), gradients_of(single), "unused everywhere");
  }
  at("unused on some ranks");
  clear(true);
  const int p = world_size();
  for (int r = 0; r < p; ++r) {
    loss_of(single->forward(whole(2).narrow(0, r * 4, 4), r == 0, true)).div(p).backward();
  }
  loss_of(ddp(own_rows(whole(2)), rank() == 0, true)).backward();
  expect_equal(gradients_of(net), gradients_of(single), "unused on some ranks");

  at("accumulation from the first backward on");
  {
    Branches fresh = net_of(7);
    Branches alone = net_of(7);
    DistributedDataParallel wrapped(fresh, {.message_size = 50});
    loss_of(alone->forward(whole(8))).backward();
    loss_of(alone->forward(whole(9), true, false)).backward();
    {
      const auto guard = wrapped.no_sync();
      loss_of(wrapped(own_rows(whole(8)))).backward();
      EXPECT_TRUE(is_bucket_view(fresh->right->weight.grad()));
    }
    loss_of(wrapped(own_rows(whole(9)), true, false)).backward();
    expect_equal(gradients_of(fresh), gradients_of(alone), "accumulation from the first on");
  }

  at("accumulation");
  clear(true);
  for (unsigned micro = 0; micro < 3; ++micro) {
    loss_of(single->forward(whole(10 + micro), true, micro != 2)).backward();
    if (micro < 2) {
      const auto guard = ddp.no_sync();
      loss_of(ddp(own_rows(whole(10 + micro)))).backward();
      EXPECT_FALSE(spread_by_reduction({net->first->weight.grad()}, world()));
    } else {
      // The branch used in earlier micro steps alone is reduced too.
      loss_of(ddp(own_rows(whole(10 + micro)), true, false)).backward();
    }
  }
  expect_equal(gradients_of(net), gradients_of(single), "accumulation");

  at("disable and enable");
  clear(false);
  loss_of(single->forward(whole(20))).backward();
  loss_of(single->forward(whole(21))).backward();
  ddp.disable_allreduce();
  loss_of(ddp(own_rows(whole(20)))).backward();
  ddp.enable_allreduce();
  loss_of(ddp(own_rows(whole(21)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "disable and enable");

  at("two reduced backwards");
  clear(true);
  for (unsigned micro = 0; micro < 2; ++micro) {
    loss_of(single->forward(whole(30 + micro), true, micro == 0)).backward();
    loss_of(ddp(own_rows(whole(30 + micro)), true, micro == 0)).backward();
  }
  expect_equal(gradients_of(net), gradients_of(single), "two reduced backwards");

  at("two forwards, one backward");
  clear(true);
  (loss_of(single->forward(whole(40))) + loss_of(single->forward(whole(41)))).backward();
  const at::Tensor a = loss_of(ddp(own_rows(whole(40))));
  (a + loss_of(ddp(own_rows(whole(41))))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "two forwards");

  at("frozen");
  clear(true);
  for (const Branches& one : {single, net}) one->left->weight.set_requires_grad(false);
  loss_of(single->forward(whole(50))).backward();
  loss_of(ddp(own_rows(whole(50)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "frozen");
  for (const Branches& one : {single, net}) one->left->weight.set_requires_grad(true);
  clear(true);
  loss_of(single->forward(whole(51))).backward();
  loss_of(ddp(own_rows(whole(51)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "unfrozen");

  at("an exception in every rank's backward");
  clear(true);
  at::Tensor broken = ddp(own_rows(whole(60)));
  const at::Tensor middle = broken.mul(1);
  middle.register_hook(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
  EXPECT_ANY_THROW(loss_of(middle).backward());
  clear(true);
  loss_of(single->forward(whole(61))).backward();
  loss_of(ddp(own_rows(whole(61)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "after an exception");

  at("a loss without parameters on one rank");
  clear(true);
  loss_of(single->forward(whole(70).narrow(0, 0, 4))).div(p).backward();
  if (rank() == 0) {
    loss_of(ddp(own_rows(whole(70)))).backward();
  } else {
    ddp(own_rows(whole(70)));
    ddp.finish_backward();
  }
  expect_equal(gradients_of(net), gradients_of(single), "a loss without parameters");

  at("the bare module");
  clear(true);
  loss_of(single->forward(whole(80))).backward();
  loss_of(ddp.module()->forward(own_rows(whole(80)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "the bare module");
  EXPECT_EQ(
      ddp.call([&](BranchesImpl& impl) { return impl.forward(whole(80), true, false).size(0); }),
      4 * p);
  EXPECT_EQ(ddp->forward(whole(80)).size(1), 3);
  EXPECT_EQ(ddp->parameters().size(), 8U);
});

TEST(DistributedDataParallel, GivesOneProcessesGradientsWhateverTheLoopDoes) {
  expect_all_pass("ddp patterns", {.ranks = 2});
  expect_all_pass("ddp patterns", {.ranks = 4});
}

const Rank kBroken("ddp broken backward", [] {
  // One rank's backward throws in the middle and the rank goes on; the others get an error instead
  // of a hang or of another step's gradients, and after that all work together again.
  start();
  Branches single = net_of(3);
  Branches net = net_of(3);
  DistributedDataParallel ddp(net, {.message_size = 1});
  for (const bool breaks : {false, true, false, true}) {
    at(breaks ? "a step that breaks" : "a step that holds");
    single->zero_grad();
    ddp.zero_grad();
    const at::Tensor all = batch_of(5, 4 * world_size());
    const at::Tensor loss = ddp.call([&](BranchesImpl& impl) {
      at::Tensor h = torch::tanh(impl.first(own_rows(all)));
      if (breaks && rank() == 1) {
        h.register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
      }
      return loss_of(impl.last(h));
    });
    if (breaks) {
      try {
        loss.backward();
        FAIL() << "nothing was thrown";
      } catch (const std::exception& e) {
        EXPECT_THAT(e.what(), HasSubstr(rank() == 1 ? "on purpose" : "broke off on another rank"));
      }
    } else {
      loss_of(single->last(torch::tanh(single->first(all)))).backward();
      loss.backward();
      expect_equal(gradients_of(net), gradients_of(single), "a step that holds");
    }
  }
});

TEST(DistributedDataParallel, ABackwardThatBreaksOffIsAnErrorOnAllAndNothingMore) {
  expect_all_pass("ddp broken backward", {.ranks = 3});
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

const Rank kJoin("ddp join", [] {
  start();
  Branches net = net_of(static_cast<unsigned>(rank()));
  DistributedDataParallel ddp(net, {.message_size = 50});
  torch::optim::SGD optimizer(ddp.parameters(), 0.1);
  const int batches = rank() == 1 ? 2 : 5;
  {
    auto guard = ddp.join();
    EXPECT_THROW((void)ddp.join(), Error);
    for (int i = 0; i < batches; ++i) {
      at("batch " + std::to_string(i));
      optimizer.zero_grad();
      if (i % 2 == 1) {
        const auto accumulate = ddp.no_sync();
        loss_of(ddp(batch_of(static_cast<unsigned>(i), 4))).backward();
        EXPECT_EQ(agree_max(torch::ones({1}), world()).item<float>(), 1);
      }
      loss_of(ddp(batch_of(static_cast<unsigned>(i), 4))).backward();
      optimizer.step();
    }
    at("closing");
    guard.close();
  }
  Gradients weights;
  for (const auto& p : net->parameters()) weights.push_back(p.detach());
  expect_same_on_all_ranks(weights, "weights after join");
  EXPECT_EQ(net->named_buffers()["seen"].item<float>(), 4 * 7);
  // And all together again.
  loss_of(ddp(batch_of(77, 4))).backward();
  expect_same_on_all_ranks(gradients_of(net), "gradients after join");
});

TEST(DistributedDataParallel, ARankWithoutDataTakesPartUntilTheOthersEnd) {
  expect_all_pass("ddp join", {.ranks = 3});
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
