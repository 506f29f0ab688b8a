// DistributedDataParallel and collectives on a device: what the host waits for, and what streams
// wait for.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "device/mirrored_ranks.h"
#include "mezzo/parallel.h"
#include "parallel/agreement.h"

namespace mezzo::pretend {
namespace {

using parallel::DDPOptions;
using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

// A process group of one, as a program without a launcher has it.
struct Alone {
  Alone() {
    parallel::InitOptions options;
    options.init_method = "tcp://127.0.0.1:29500";
    options.rank = 0;
    options.world_size = 1;
    parallel::init_process_group(options);
  }
  ~Alone() { parallel::destroy_process_group(); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
};

struct LayersImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr};
  LayersImpl() {
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
    spare = register_module("spare", torch::nn::Linear(5, 3));
    register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x, bool all = true) {
    named_buffers()["seen"].add_(1);
    const at::Tensor y = second(torch::tanh(first(x)));
    return all ? y + spare(x) : y;
  }
};
TORCH_MODULE(Layers);

Layers layers(at::ScalarType type) {
  torch::manual_seed(4);
  Layers net;
  net->to(device(), type);
  return net;
}

at::Tensor batch(unsigned seed, at::ScalarType type) {
  torch::manual_seed(seed);
  return torch::randn({6, 5}).to(device(), type);
}

at::Tensor loss_of(const at::Tensor& y) {
  return y.to(at::kFloat).square().mean();
}

std::vector<at::Tensor> gradients_of(const Layers& net) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : net->parameters()) {
    all.push_back(p.grad().defined() ? p.grad().cpu().clone() : at::Tensor());
  }
  return all;
}

struct Way {
  std::string name;
  at::ScalarType type = at::kFloat;
  DDPOptions options = {};
  std::optional<at::ScalarType> compression = std::nullopt;
};

std::vector<Way> ways() {
  return {{"float", at::kFloat, {.message_size = 20}},
          {"bfloat16", at::kBFloat16, {.message_size = 20}},
          {"half as float", at::kHalf, {.message_size = 20, .allreduce_always_fp32 = true}},
          {"at the end", at::kFloat, {.delay_allreduce = true}},
          {"divided before", at::kFloat, {.gradient_predivide_factor = 2}},
          {"no unused", at::kFloat, {.message_size = 20, .find_unused_parameters = false}},
          {"compressed", at::kFloat, {.message_size = 20}, at::kBFloat16}};
}

// Four steps, of which the first brings the order of buckets, beside a net that nobody wraps.
void expect_steps_without_waits(const Way& way, const std::optional<ProcessGroup>& group) {
  Layers single = layers(way.type);
  Layers net = layers(way.type);
  DDPOptions options = way.options;
  options.process_group = group;
  DistributedDataParallel ddp(net, options);
  if (way.compression) ddp.compress_bf16();
  for (unsigned step = 0; step < 4; ++step) {
    const at::Tensor x = batch(step, way.type);
    single->zero_grad();
    loss_of(single->forward(x)).backward();
    finish();
    {
      const Watch watch;
      ddp.zero_grad();
      loss_of(ddp(x)).backward();
      if (step > 0) expect_no_wait(watch, way.name + ", step " + std::to_string(step));
    }
    std::vector<at::Tensor> expected = gradients_of(single);
    for (at::Tensor& one : expected) {
      if (way.compression) one = one.to(*way.compression).to(at::kFloat);
    }
    const std::vector<at::Tensor> got = gradients_of(net);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(torch::equal(got[i], expected[i]))
          << way.name << ", step " << step << ", gradient " << i << '\n'
          << got[i] << expected[i];
    }
  }
}

TEST(DeviceDataParallel, AStepInOneProcessWaitsForNothing) {
  const Alone alone;
  for (const std::uint64_t order : {0, 1}) {
    seed(order);
    for (Way way : ways()) {
      way.compression.reset();
      expect_steps_without_waits(way, std::nullopt);
    }
  }
  seed(0);
}

TEST(DeviceDataParallel, AParameterThatNobodyUsesCostsOneProcessNoWait) {
  const Alone alone;
  Layers net = layers(at::kFloat);
  DistributedDataParallel ddp(net, {.message_size = 20});
  for (unsigned step = 0; step < 3; ++step) {
    const at::Tensor x = batch(step, at::kFloat);
    finish();
    const Watch watch;
    loss_of(ddp.call([&](LayersImpl& impl) { return impl.forward(x, false); })).backward();
    expect_no_wait(watch, "step " + std::to_string(step));
  }
  EXPECT_FALSE(net->spare->weight.grad().defined());
}

TEST(DeviceDataParallel, AGraphHoldsForwardAndBackwardOfOneProcess) {
  const Alone alone;
  Layers single = layers(at::kFloat);
  Layers net = layers(at::kFloat);
  const at::Tensor x = batch(0, at::kFloat);
  finish();
  const c10::Stream side = new_stream();
  Graph graph;
  {
    const c10::StreamGuard guard(side);
    DistributedDataParallel ddp(net, {.message_size = 20});
    const auto step = [&] {
      ddp.zero_grad();
      loss_of(ddp(x)).backward();
    };
    for (int warm = 0; warm < 3; ++warm) step();
    finish();
    graph.begin(side);
    step();
    graph.end();
  }
  for (unsigned turn = 1; turn < 4; ++turn) {
    x.copy_(batch(turn, at::kFloat));
    finish();
    graph.replay();
    single->zero_grad();
    loss_of(single->forward(x)).backward();
    const std::vector<at::Tensor> expected = gradients_of(single);
    const std::vector<at::Tensor> got = gradients_of(net);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(torch::equal(got[i], expected[i])) << turn << ", gradient " << i;
    }
  }
}

TEST(DeviceDataParallel, AStepOfRanksThatNothingCarriesByTheHostWaitsForNothing) {
  for (const std::uint64_t order : {0, 1, 2}) {
    seed(order);
    for (const Way& way : ways()) expect_steps_without_waits(way, two_ranks());
  }
  seed(0);
}

TEST(DeviceDataParallel, AnUnusedParameterIsAnErrorOfTheNextBackward) {
  Layers net = layers(at::kFloat);
  DistributedDataParallel ddp(net, {.find_unused_parameters = false, .process_group = two_ranks()});
  const at::Tensor x = batch(1, at::kFloat);
  const auto step = [&](bool all) {
    loss_of(ddp.call([&](LayersImpl& impl) { return impl.forward(x, all); })).backward();
  };
  step(true);
  finish();
  const Watch watch;
  net->zero_grad();
  step(false);
  expect_no_wait(watch, "the step that lacks a gradient");
  try {
    step(true);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'spare.weight'"));
  }
  step(true);  // it was said once
  EXPECT_NO_THROW(step(true));
}

// Accumulators that were made under different streams run on these; a bucket holds gradients of
// both.
TEST(DeviceDataParallel, ABucketWaitsForAllStreamsOnWhichItsGradientsAreWritten) {
  for (std::uint64_t order = 0; order < 12; ++order) {
    seed(order);
    Layers single = layers(at::kFloat);
    Layers net = layers(at::kFloat);
    finish();
    std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
    const c10::Stream streams[] = {new_stream(), new_stream()};
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const c10::StreamGuard guard(streams[i % 2]);
      accumulators.push_back(torch::autograd::impl::grad_accumulator(net->parameters()[i]));
    }
    DistributedDataParallel ddp(net, {.process_group = two_ranks()});
    for (unsigned step = 0; step < 3; ++step) {
      const at::Tensor x = batch(step, at::kFloat);
      single->zero_grad();
      ddp.zero_grad();
      loss_of(single->forward(x)).backward();
      loss_of(ddp(x)).backward();
      const std::vector<at::Tensor> expected = gradients_of(single);
      const std::vector<at::Tensor> got = gradients_of(net);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i], expected[i])) << order << ", step " << step << ", " << i;
      }
    }
  }
  seed(0);
}

// Memory that a hook allocated on the accumulators' stream is read on the caller's at the end.
TEST(DeviceDataParallel, MemoryOfASumIsKeptForTheStreamThatReadsItLast) {
  for (std::uint64_t order = 0; order < 12; ++order) {
    seed(order);
    Layers single = layers(at::kHalf);
    Layers net = layers(at::kHalf);
    finish();
    const c10::Stream side = new_stream();
    std::optional<DistributedDataParallel<Layers>> ddp;
    {
      const c10::StreamGuard guard(side);
      ddp.emplace(net, DDPOptions{.allreduce_always_fp32 = true, .process_group = two_ranks()});
    }
    finish();
    for (unsigned step = 0; step < 3; ++step) {
      const at::Tensor x = batch(step, at::kHalf);
      single->zero_grad();
      ddp->zero_grad();
      loss_of(single->forward(x)).backward();
      loss_of((*ddp)(x)).backward();
      std::vector<at::Tensor> others;
      {
        const c10::StreamGuard guard(side);
        // Sums may have had every size.
        for (std::int64_t elements = 32; elements <= 512; elements += 16) {
          others.push_back(torch::full({elements}, 7.0F, device()));
        }
      }
      const std::vector<at::Tensor> expected = gradients_of(single);
      const std::vector<at::Tensor> got = gradients_of(net);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i], expected[i])) << order << ", step " << step << ", " << i;
      }
    }
  }
  seed(0);
}

TEST(DeviceCollectives, AreComparedByTheTransportOfTheProcessor) {
  const ProcessGroup group = two_ranks(Other::kSame, /*compare_calls=*/true);
  const at::Tensor numbers = at::ones({5}, device());
  group.all_reduce(numbers);
  EXPECT_EQ(numbers.sum().item<float>(), 10);
  EXPECT_EQ(group.all_gather(numbers).sum().item<float>(), 20);
}

TEST(DeviceCollectives, OfOneProcessStayOnTheDevice) {
  const Alone alone;
  const at::Tensor numbers = at::ones({5}, device());
  const Watch watch;
  parallel::world().all_reduce(numbers);
  const at::Tensor all = parallel::world().all_gather(numbers);
  parallel::world().broadcast(numbers);
  expect_no_wait(watch, "collectives");
  EXPECT_EQ(watch.counts().copies_to_device, 0);
  EXPECT_EQ(all.sum().item<float>(), 5);
}

TEST(DeviceCollectives, AReducerWhoseGradientsAreThereWaitsForNothing) {
  const at::Tensor weight = at::ones({3}, device()).requires_grad_(true);
  parallel::Reducer reducer({weight}, two_ranks());
  weight.mutable_grad() = at::full({3}, 4.0, device());
  finish();
  const Watch watch;
  reducer.reduce();
  expect_no_wait(watch, "reduce");
  EXPECT_EQ(weight.grad().sum().item<float>(), 12);
}

TEST(DeviceCollectives, RanksAgreeOnAFlagWithoutAWait) {
  const at::Tensor flag = at::ones({}, device());
  const ProcessGroup group = two_ranks();
  finish();
  const Watch watch;
  const parallel::AgreedFlag agreed = parallel::agree_overflow(
      flag, [] { return std::nullopt; }, group);
  expect_no_wait(watch, "agree_overflow");
  EXPECT_EQ(agreed.found_inf.item<float>(), 1);
}

}  // namespace
}  // namespace mezzo::pretend
