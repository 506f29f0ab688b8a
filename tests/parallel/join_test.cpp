// Ranks that run out of data one by one, against one process that trains on what there is.
#include <gmock/gmock.h>

#include <stdexcept>

#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::Rank;
using testing_ranks::start;

struct NormedImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  SyncBatchNorm norm{nullptr};
  torch::nn::BatchNorm1d field{nullptr};
  NormedImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", SyncBatchNorm(4));
    field = register_module("field", torch::nn::BatchNorm1d(4));
    second = register_module("second", torch::nn::Linear(4, 1));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::tanh(field(torch::tanh(norm(first(x))))));
  }
};
TORCH_MODULE(Normed);

at::Tensor batch_of(int step, int of_rank) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + of_rank));
  return torch::randn({5, 3}, at::kDouble) + 0.3 * of_rank;
}

Normed normed_net_of(unsigned seed) {
  torch::manual_seed(seed);
  return Normed();
}

torch::optim::SGD optimizer_of(const Normed& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.5));
}

// How many batches each rank has, in groups of how many ranks statistics are taken, and whether the
// loop accumulates.
struct Loop {
  std::vector<int> batches;
  int group_size = 0;
  bool accumulates = false;
  DDPOptions options = {};
};

// The same network for the batches of the ranks that have one, in one process; its running
// statistics are those of the last group.
Normed trained_alone(const Loop& loop) {
  Normed net = normed_net_of(1);
  // A world of its own, though there are others.
  net->norm->options.process_group = create_syncbn_process_group(1);
  torch::optim::SGD optimizer = optimizer_of(net);
  const int ranks = static_cast<int>(loop.batches.size());
  const int group_size = loop.group_size == 0 ? ranks : loop.group_size;
  for (int step = 0; step < *std::ranges::max_element(loop.batches); ++step) {
    at::Tensor loss = torch::zeros({}, at::kDouble);
    int active = 0;
    for (int begin = 0; begin < ranks; begin += group_size) {
      for (const int part : loop.accumulates ? std::vector<int>{1000, 0} : std::vector<int>{0}) {
        std::vector<at::Tensor> batches;
        for (int r = begin; r < begin + group_size; ++r) {
          if (step < loop.batches[static_cast<std::size_t>(r)]) {
            batches.push_back(batch_of(step + part, r));
          }
        }
        if (batches.empty()) continue;
        const auto count = static_cast<double>(batches.size());
        loss = loss + net(torch::cat(batches)).square().mean() * count;
        if (part == 0) active += static_cast<int>(batches.size());
      }
    }
    optimizer.zero_grad();
    (loss / active).backward();
    optimizer.step();
  }
  return net;
}

Normed trained_together(const Loop& loop) {
  Normed net = normed_net_of(static_cast<unsigned>(1 + rank()));
  const auto group = create_syncbn_process_group(loop.group_size);
  net->norm->options.process_group = group;
  convert_syncbn_model(net, group);
  DistributedDataParallel ddp(net, loop.options);
  torch::optim::SGD optimizer = optimizer_of(net);
  auto guard = ddp.join(/*divide_by_active=*/true);
  const int batches = loop.batches[static_cast<std::size_t>(rank())];
  for (int step = 0; step < batches; ++step) {
    at("batch " + std::to_string(step));
    ddp.zero_grad();
    if (loop.accumulates) {
      const auto accumulate = ddp.no_sync();
      ddp(batch_of(step + 1000, rank())).square().mean().backward();
    }
    ddp(batch_of(step, rank())).square().mean().backward();
    optimizer.step();
  }
  at("closing");
  guard.close();
  return net;
}

void expect_near(const at::Tensor& a, const at::Tensor& b, const std::string& name) {
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-10) << name << '\n' << a << '\n' << b;
}

void expect_trains_as_alone(const Loop& loop) {
  const Normed together = trained_together(loop);
  const Normed alone = trained_alone(loop);
  for (const auto& item : alone->named_parameters()) {
    expect_near(together->named_parameters()[item.key()], item.value(), item.key());
  }
  if (loop.group_size != 0 || loop.accumulates) return;
  for (const auto& item : alone->named_buffers()) {
    expect_near(together->named_buffers()[item.key()].to(at::kDouble), item.value().to(at::kDouble),
                item.key());
  }
}

const Rank kNorms("join with batch norms", [] {
  start();
  at("rank 0 stays longest");
  expect_trains_as_alone({.batches = {4, 2, 3, 1}});
  at("rank 0 leaves first");
  expect_trains_as_alone({.batches = {1, 4, 0, 3}});
  at("accumulation");
  expect_trains_as_alone({.batches = {3, 1, 2, 2}, .accumulates = true});
  at("small buckets");
  expect_trains_as_alone({.batches = {2, 3, 1, 0}, .options = {.message_size = 1}});
  at("a user's hook");
  const auto by_hand = [](const GradientBucket& bucket,
                          const ProcessGroup& group) -> std::function<void()> {
    group.all_reduce(bucket.gradients);
    return nullptr;
  };
  {
    Normed net = normed_net_of(1);
    convert_syncbn_model(net);
    DistributedDataParallel ddp(net, {.message_size = 5});
    ddp.register_comm_hook(by_hand);
    auto guard = ddp.join();
    for (int step = 0; step < 2 + rank(); ++step) {
      ddp.zero_grad();
      ddp(batch_of(step, rank())).square().mean().backward();
    }
    guard.close();
  }
});

TEST(Join, BatchNormsGoOnWithTheRanksThatHaveData) {
  expect_all_pass("join with batch norms", {.ranks = 4});
}

const Rank kJoinGroups("join with groups of batch norms", [] {
  start();
  at("a group of which one has left");
  expect_trains_as_alone({.batches = {3, 3, 3, 1}, .group_size = 2});
  at("a group of which all have left");
  expect_trains_as_alone({.batches = {2, 4, 1, 1}, .group_size = 2});
});

TEST(Join, BatchNormsKeepToTheirGroups) {
  expect_all_pass("join with groups of batch norms", {.ranks = 4});
}

const Rank kModels("join with two models", [] {
  start();
  torch::manual_seed(7);
  torch::nn::Linear first(3, 3), second(3, 1);
  DistributedDataParallel one(first), two(second, {.find_unused_parameters = false});
  torch::optim::SGD sgd_one(first->parameters(), 0.1), sgd_two(second->parameters(), 0.1);
  {
    auto join_one = one.join();
    auto join_two = two.join();
    EXPECT_THROW((void)one.join(), Error);
    for (int step = 0; step < (rank() == 0 ? 1 : 3); ++step) {
      one.zero_grad();
      two.zero_grad();
      two(one(batch_of(step, rank()).to(at::kFloat))).square().mean().backward();
      sgd_one.step();
      sgd_two.step();
    }
    join_two.close();
    join_one.close();
  }
  for (const at::Tensor& p : {first->weight, first->bias, second->weight, second->bias}) {
    const at::Tensor all = world().all_gather(p.detach());
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
  }
  at("once more");
  auto again = two.join();
  for (int step = 0; step < rank(); ++step) {
    two.zero_grad();
    two(batch_of(step, rank()).to(at::kFloat)).square().mean().backward();
  }
  again.close();
});

TEST(Join, HoldsForSeveralModelsAndAgain) {
  expect_all_pass("join with two models", {.ranks = 3});
}

const Rank kJoinThrows("join left by an exception", [] {
  start();
  torch::manual_seed(7);
  torch::nn::Linear first(3, 3), second(3, 1);
  torch::nn::Sequential net(first, second);
  DistributedDataParallel ddp(net, {.message_size = 1});
  int broken = 0;
  try {
    auto guard = ddp.join();
    for (int step = 0; step < 4; ++step) {
      at("step " + std::to_string(step));
      ddp.zero_grad();
      const at::Tensor y = ddp.call([&](torch::nn::SequentialImpl&) {
        const at::Tensor h = first(batch_of(step, rank()).to(at::kFloat));
        if (rank() == 1 && step == 1) {
          // The second layer's gradients are on their way.
          h.register_hook([](const at::Tensor&) { throw std::runtime_error("a mistake"); });
        }
        return second(h);
      });
      try {
        y.square().mean().backward();
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("broke off"));
        ++broken;
      }
    }
    guard.close();
    EXPECT_EQ(broken, 1);
  } catch (const std::runtime_error& e) {
    EXPECT_EQ(rank(), 1) << e.what();
  }
  at("all together again");
  for (const at::Tensor& weight : {first->weight, second->weight}) {
    const at::Tensor all = world().all_gather(weight.detach());
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
  }
});

TEST(Join, ARankThatThrowsHasLeft) {
  expect_all_pass("join left by an exception", {.ranks = 3});
}

// A network in a loop, one layer of which may be frozen.
struct Freezing {
  Freezing() { torch::manual_seed(7); }
  void train(int step) const {
    ddp.zero_grad();
    ddp(batch_of(step, rank()).to(at::kFloat)).square().mean().backward();
  }
  void freeze(bool frozen) const { first->weight.set_requires_grad(!frozen); }
  void expect_equal_gradients() const {
    for (const at::Tensor& p : ddp.parameters()) {
      const at::Tensor all = world().all_gather(p.grad());
      EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
    }
  }

  torch::nn::Linear first{3, 3}, second{3, 1};
  DistributedDataParallel<torch::nn::Sequential> ddp{torch::nn::Sequential(first, second)};
};

const Rank kFrozenJoin("join with a layer that is frozen", [] {
  start();
  const Freezing net;
  auto guard = net.ddp.join();
  at("frozen while all have data");
  net.train(0);
  net.freeze(true);
  net.train(1);
  if (rank() == 1) {
    EXPECT_THROW(guard.close(), UnsupportedError);
  } else {
    net.train(2);
    at("unfrozen without rank 1");
    net.freeze(false);
    try {
      net.train(3);
      FAIL() << "nothing was thrown";
    } catch (const UnsupportedError& e) {
      EXPECT_THAT(e.what(), HasSubstr("after a rank had run out of data"));
    }
    EXPECT_THROW(net.train(4), Error);
    EXPECT_THROW(guard.close(), Error);
  }
  at("all together again");
  net.freeze(false);
  auto again = net.ddp.join();
  for (int step = 0; step < 2 + rank(); ++step) net.train(step);
  again.close();
  net.train(9);
  net.expect_equal_gradients();
});

TEST(Join, AChangeOfWhatIsFrozenIsAnErrorForAllOnceARankHasLeft) {
  expect_all_pass("join with a layer that is frozen", {.ranks = 3});
}

const Rank kFrozenAlone("join with a layer that one rank freezes", [] {
  start();
  const Freezing net;
  auto guard = net.ddp.join();
  net.train(0);
  net.freeze(rank() == 1);
  try {
    net.train(1);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("a change of which parameters require gradients"));
  }
  EXPECT_THROW(guard.close(), Error);
  at("all together again");
  net.freeze(false);
  net.train(2);
  net.expect_equal_gradients();
});

TEST(Join, RanksThatDoDifferentThingsAllHearOfIt) {
  expect_all_pass("join with a layer that one rank freezes", {.ranks = 3});
}

}  // namespace
}  // namespace mezzo::parallel
