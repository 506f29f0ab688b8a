// Gradients in low types, compressed, and by a hook of the user.
#include <gtest/gtest.h>

#include "mezzo/parallel.h"
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

const Rank kWidths("ddp widths on the wire", [] {
  start();
  const at::Tensor all = batch_of(9, 4 * world_size());
  const auto bytes = [&](at::ScalarType type, const DDPOptions& options, bool compressed) {
    at(std::string(c10::toString(type)) + (compressed ? " compressed" : ""));
    Branches net = net_of(1, type);
    Branches single = net_of(1, at::kDouble);
    DistributedDataParallel ddp(net, options);
    if (compressed) ddp.compress_fp16();
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      single->zero_grad();
      loss_of(ddp(own_rows(all).to(type))).backward();
      loss_of(single->forward(all.to(at::kDouble))).backward();
      expect_equal(gradients_of(net), gradients_of(single), c10::toString(type), 1e-2);
    }
    return ddp.statistics().bytes_sent;
  };
  const std::int64_t of_floats = bytes(at::kFloat, {}, false);
  EXPECT_EQ(bytes(at::kDouble, {}, false), 2 * of_floats);
  // For few elements between more than four ranks, the transport sums floats.
  EXPECT_EQ(bytes(at::kHalf, {}, false), world_size() > 4 ? of_floats : of_floats / 2);
  EXPECT_EQ(bytes(at::kHalf, {.allreduce_always_fp32 = true}, false), of_floats);
  EXPECT_EQ(2 * bytes(at::kFloat, {}, true), of_floats);
  EXPECT_EQ(2 * bytes(at::kDouble, {}, true), of_floats);
  // Compression is for what is wider; what is low goes as the option says.
  EXPECT_EQ(bytes(at::kHalf, {.allreduce_always_fp32 = true}, true), of_floats);
});

TEST(DistributedDataParallel, TravelsInTheTypeThatWasAskedFor) {
  expect_all_pass("ddp widths on the wire", {.ranks = 2});
  expect_all_pass("ddp widths on the wire", {.ranks = 5});
}

TEST(DistributedDataParallel, CompressesOnTheWireAndCallsTheUsersHook) {
  expect_all_pass("ddp hooks", {.ranks = 2});
  expect_all_pass("ddp hooks", {.ranks = 5});
}

}  // namespace
}  // namespace mezzo::parallel
