// Gradients of several processes against those of one process on all of the data.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "distributed/agreement.h"
#include "distributed/several.h"
#include "mezzo/parallel.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_all_report;
using testing_ranks::Rank;
using testing_ranks::start;

// Two branches, of which a forward may take one, and a weight that is used twice.
struct BranchesImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, left{nullptr}, right{nullptr}, last{nullptr};
  BranchesImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    left = register_module("left", torch::nn::Linear(8, 8));
    right = register_module("right", torch::nn::Linear(8, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x, bool go_left = true, bool go_right = true) {
    named_buffers()["seen"].add_(x.size(0));
    at::Tensor h = torch::tanh(first(x));
    if (go_left) h = h + left(torch::relu(left(h)));
    if (go_right) h = h + right(h);
    return last(h);
  }
};
TORCH_MODULE(Branches);

Branches net_of(unsigned seed, at::ScalarType type = at::kFloat) {
  torch::manual_seed(seed);
  Branches net;
  net->to(type);
  return net;
}

at::Tensor batch_of(unsigned seed, int rows, at::ScalarType type = at::kFloat) {
  torch::manual_seed(seed);
  return torch::randn({rows, 6}, at::kDouble).to(type);
}

at::Tensor loss_of(const at::Tensor& y) {
  return y.to(at::kFloat).square().mean();
}

using Gradients = std::vector<at::Tensor>;

Gradients gradients_of(const Branches& net) {
  Gradients all;
  for (const auto& p : net->parameters())
    all.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  return all;
}

void expect_equal(const Gradients& a, const Gradients& b, const std::string& what,
                  double tolerance = 2e-6) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << what << ", gradient " << i;
    if (!a[i].defined()) continue;
    const double error = (a[i].to(at::kDouble) - b[i].to(at::kDouble)).abs().max().item<double>();
    ASSERT_LE(error, tolerance * (1 + b[i].abs().max().item<double>()))
        << what << ", gradient " << i;
  }
}

void expect_same_on_all_ranks(const Gradients& mine, const std::string& what) {
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (!mine[i].defined()) continue;
    const at::Tensor all = world().all_gather(mine[i]);
    for (int r = 1; r < world_size(); ++r)
      ASSERT_TRUE(torch::equal(all[r], all[0])) << what << ", gradient " << i;
  }
}

// Each rank's rows of a batch for everybody.
at::Tensor own_rows(const at::Tensor& all) {
  const std::int64_t each = all.size(0) / world_size();
  return all.narrow(0, rank() * each, each);
}

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

const Rank kLow("ddp low types", [] {
  start();
  for (const auto type : {at::kHalf, at::kBFloat16, at::kDouble}) {
    Branches net = net_of(1, type);
    DistributedDataParallel ddp(net, {.message_size = 40});
    Branches single = net_of(1, at::kDouble);
    single->to(type);
    single->to(at::kDouble);
    const at::Tensor all = batch_of(7, 4 * world_size(), type);
    loss_of(single->forward(all.to(at::kDouble))).backward();
    loss_of(ddp(own_rows(all))).backward();
    expect_equal(gradients_of(net), gradients_of(single), c10::toString(type),
                 type == at::kDouble ? 1e-6
                 : type == at::kHalf ? 4e-3
                                     : 4e-2);
    expect_same_on_all_ranks(gradients_of(net), "low types");
    EXPECT_EQ(net->first->weight.grad().scalar_type(), type);
  }
  at("an average of large numbers");
  torch::nn::Linear line(torch::nn::LinearOptions(4, 1).bias(false));
  line->to(at::kHalf);
  DistributedDataParallel ddp(line);
  ddp(torch::full({1, 4}, 40000.0, at::kHalf)).sum().backward();
  EXPECT_TRUE((line->weight.grad() == 40000.0).all().item<bool>());
});

TEST(DistributedDataParallel, ReducesLowGradientsInTheirTypeWithFloatSums) {
  expect_all_pass("ddp low types", {.ranks = 2});
  expect_all_pass("ddp low types", {.ranks = 4});
}

// Buckets large enough to be summed in shards, which takes two collectives a bucket.
const Rank kLarge("ddp large low buckets", [] {
  start();
  const auto layers = [](at::ScalarType type) {
    torch::manual_seed(4);
    torch::nn::Sequential net;
    for (int i = 0; i < 3; ++i) net->push_back(torch::nn::Linear(600, 600));
    net->to(type);
    return net;
  };
  const auto gradients = [](const torch::nn::Sequential& net) {
    Gradients all;
    for (const auto& p : net->parameters()) all.push_back(p.grad());
    return all;
  };
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({2 * world_size(), 600});
  torch::nn::Sequential exact = layers(at::kDouble);
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    exact->zero_grad();
    const auto low = type == at::kFloat ? at::kBFloat16 : type;
    exact->to(low);
    exact->to(at::kDouble);
    exact->forward(x.to(low).to(at::kDouble)).sum().backward();
    torch::nn::Sequential net = layers(low);
    net->to(type);
    DistributedDataParallel ddp(net, {.message_size = 300'000, .num_allreduce_streams = 2});
    if (type == at::kFloat) ddp.compress_bf16();
    const double tolerance = low == at::kHalf ? 4e-3 : 4e-2;
    const auto step = [&](bool breaks) {
      ddp.zero_grad();
      at::Tensor y = ddp.call([&](torch::nn::SequentialImpl& impl) {
        at::Tensor h = impl[0]->as<torch::nn::Linear>()->forward(own_rows(x.to(low).to(type)));
        if (breaks && rank() == 1) {
          h.register_hook(
              [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
        }
        h = impl[1]->as<torch::nn::Linear>()->forward(h);
        return impl[2]->as<torch::nn::Linear>()->forward(h);
      });
      y.sum(at::kFloat).mul(world_size()).backward();
    };
    for (int i = 0; i < 4; ++i) {
      at(std::string(c10::toString(type)) + " step " + std::to_string(i));
      if (i == 2) {
        EXPECT_ANY_THROW(step(true));
        continue;
      }
      step(false);
      expect_equal(gradients(net), gradients(exact), c10::toString(type), tolerance);
      expect_same_on_all_ranks(gradients(net), "large buckets");
    }
    at(std::string(c10::toString(type)) + " join");
    auto join = ddp.join();
    for (int i = 0; i < (rank() == 1 ? 1 : 3); ++i) step(false);
    join.close();
    step(false);
    expect_same_on_all_ranks(gradients(net), "after a join");
  }
});

TEST(DistributedDataParallel, SumsLargeBucketsInShards) {
  expect_all_pass("ddp large low buckets", {.ranks = 2});
  expect_all_pass("ddp large low buckets", {.ranks = 4});
}

const Rank kHooks("ddp hooks", [] {
  start();
  Branches single = net_of(1);
  const at::Tensor all = batch_of(9, 4 * world_size());
  loss_of(single->forward(all, true, false)).backward();
  for (int way = 0; way < 5; ++way) {
    Branches net = net_of(1);
    DistributedDataParallel ddp(net, {.message_size = 40});
    int calls = 0;
    if (way == 0) ddp.compress_fp16();
    if (way == 1) ddp.compress_bf16();
    if (way == 2) ddp.register_comm_hook(compress_fp16());
    if (way == 3) ddp.register_comm_hook(compress_bf16());
    if (way == 4) {
      ddp.register_comm_hook(
          [&](const GradientBucket& bucket, const ProcessGroup& group) -> std::function<void()> {
            ++calls;
            group.all_reduce(bucket.gradients, ReduceOp::kAverage);
            return nullptr;
          });
    }
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      loss_of(ddp(own_rows(all), true, false)).backward();
      expect_equal(gradients_of(net), gradients_of(single), "hook " + std::to_string(way),
                   way % 2 == 1 ? 2e-2 : 2e-3);
      expect_same_on_all_ranks(gradients_of(net), "hook");
    }
    if (way == 4) {
      EXPECT_GE(calls, 2);
    }
    EXPECT_THROW(ddp.register_comm_hook(nullptr), ConfigError);
  }
});

TEST(DistributedDataParallel, CompressesOnTheWireAndCallsTheUsersHook) {
  expect_all_pass("ddp hooks", {.ranks = 2});
  expect_all_pass("ddp hooks", {.ranks = 5});
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
