#include "parallel_ranks.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness.h"
#include "mezzo/amp.h"
#include "mezzo/optim.h"
#include "mezzo/parallel.h"
#include "parallel/agreement.h"
#include "parallel/averaging.h"
#include "parallel/group.h"

namespace mezzo::bench {
namespace {

using parallel::agree_overflow;
using parallel::average_scale;
using parallel::AverageScale;
using parallel::barrier;
using parallel::convert_syncbn_model;
using parallel::DDPOptions;
using parallel::destroy_process_group;
using parallel::DistributedDataParallel;
using parallel::init_process_group;
using parallel::Lane;
using parallel::OverflowWatch;
using parallel::rank;
using parallel::ReduceOp;
using parallel::start_average_by;
using parallel::Wire;
using parallel::world;
using parallel::world_size;

// As interleave(), with a number of calls that all ranks know.
Pair in_turns(const std::function<void()>& ours, const std::function<void()>& peer, int calls,
              int repeats) {
  std::vector<double> our_times;
  std::vector<double> peer_times;
  std::vector<double> ratios;
  for (int i = -1; i < repeats; ++i) {
    const double mine = seconds_together(ours, calls);
    const double others = seconds_together(peer, calls);
    if (i < 0) continue;
    our_times.push_back(mine);
    peer_times.push_back(others);
    ratios.push_back(others / mine);
  }
  std::sort(ratios.begin(), ratios.end());
  const double spread =
      (ratios[ratios.size() * 3 / 4] - ratios[ratios.size() / 4]) / ratios[ratios.size() / 2];
  return {*std::min_element(our_times.begin(), our_times.end()),
          *std::min_element(peer_times.begin(), peer_times.end()), spread};
}

std::string count_of(std::int64_t elements) {
  return elements >= 1'000'000 ? std::to_string(elements / 1'000'000) + " M"
                               : std::to_string(elements / 1000) + " K";
}

void averages(int repeats) {
  Lane& gloo = world().internals().calls();
  for (const std::int64_t elements : {65'000LL, 1'000'000LL, 7'000'000LL}) {
    const int calls = elements < 500'000 ? 20 : elements < 5'000'000 ? 5 : 1;
    const at::Tensor wide = torch::randn({elements});
    for (const auto type : {at::kHalf, at::kBFloat16}) {
      const at::Tensor low = wide.to(type);
      const std::string name = "average of " + count_of(elements) + " " +
                               (type == at::kHalf ? "float16" : "bfloat16") + ", " +
                               std::to_string(world_size()) + " ranks";
      const at::Tensor floats = torch::zeros({elements});
      const auto ours = [&] { world().all_reduce(low, ReduceOp::kAverage); };
      const auto add = [&](const char* peer_name, const std::function<void()>& peer,
                           std::optional<double> target) {
        const Pair pair = in_turns(ours, peer, calls, repeats);
        write_line({.name = name,
                    .ours = pair.ours,
                    .peer = pair.peer,
                    .peer_name = peer_name,
                    .spread = pair.spread,
                    .target = target,
                    .bytes = static_cast<double>(low.nbytes())});
      };
      // The promise is for two ranks and large buffers.
      const bool promised = world_size() == 2 && elements >= 1'000'000;
      add(
          "Gloo's sum of floats", [&] { gloo.all_reduce(floats)->wait(); },
          promised ? std::optional<double>(1.0) : std::nullopt);
      const at::Tensor summed = torch::zeros_like(low);
      add(
          "Gloo's sum in that type", [&] { gloo.all_reduce(summed)->wait(); }, std::nullopt);
    }
  }
}

// The ways that averaging.h chooses from, each against Gloo's sum of as many floats.
void ways(int repeats) {
  struct Way {
    const char* name;
    Wire wire;
  };
  std::vector<Way> all{
      {"in shards", Wire::kShards}, {"gathered", Wire::kGather}, {"as float", Wire::kFloat}};
  if (world_size() == 2) all.push_back({"swapped", Wire::kSwap});
  Lane& lane = world().internals().calls();
  const AverageScale scale = average_scale(world_size());
  for (const std::int64_t elements : {65'000LL, 250'000LL, 1'000'000LL, 8'000'001LL}) {
    const int calls = elements < 500'000 ? 20 : elements < 5'000'000 ? 5 : 1;
    const at::Tensor low = torch::randn({elements}).to(at::kBFloat16);
    const at::Tensor floats = torch::zeros({elements});
    for (const Way& way : all) {
      const Pair pair = in_turns([&] { start_average_by(way.wire, lane, low, scale)->wait(); },
                                 [&] { lane.all_reduce(floats)->wait(); }, calls, repeats);
      write_line({.name = "average of " + count_of(elements) + " bfloat16 " + way.name + ", " +
                          std::to_string(world_size()) + " ranks",
                  .ours = pair.ours,
                  .peer = pair.peer,
                  .peer_name = "Gloo's sum of floats",
                  .spread = pair.spread,
                  .bytes = static_cast<double>(low.nbytes())});
    }
  }
}

double collectives_of(const std::function<void()>& work) {
  work();
  const std::int64_t before = world().counts().collectives;
  work();
  return static_cast<double>(world().counts().collectives - before);
}

torch::nn::Sequential layers() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(torch::nn::Linear(768, 768));
    net->push_back(torch::nn::Tanh());
  }
  return net;
}

// The same network without wrapper, and under DistributedDataParallel.
class Steps {
 public:
  void plain() {
    plain_->zero_grad();
    plain_->forward(x_).square().mean().backward();
  }
  void by_hand() {
    plain();
    for (const at::Tensor& p : plain_->parameters()) {
      world().all_reduce(p.grad(), ReduceOp::kAverage);
    }
  }
  void overlapped() { step(overlapped_); }
  void delayed() { step(delayed_); }
  std::int64_t copied_bytes() const { return overlapped_.statistics().copied_bytes; }

 private:
  using Wrapped = DistributedDataParallel<torch::nn::Sequential>;
  void step(const Wrapped& ddp) const {
    ddp.zero_grad();
    ddp(x_).square().mean().backward();
  }
  const at::Tensor x_ = torch::randn({128, 768});
  torch::nn::Sequential plain_ = layers();
  const Wrapped overlapped_{layers(), {.message_size = 1'200'000}};
  const Wrapped delayed_{layers(), {.delay_allreduce = true}};
};

std::string all_ranks() {
  return ", " + std::to_string(world_size()) + " ranks";
}

void time_steps(Steps& steps, int repeats) {
  const auto overlapped = [&] { steps.overlapped(); };
  const Pair hand = in_turns(
      overlapped, [&] { steps.by_hand(); }, 1, repeats);
  write_line({.name = "forward and backward of 12 x Linear(768), batch 128" + all_ranks(),
              .ours = hand.ours,
              .peer = hand.peer,
              .peer_name = "an all-reduce per tensor by hand",
              .spread = hand.spread,
              .target = 1.0});
  const Pair overlap = in_turns(
      overlapped, [&] { steps.delayed(); }, 1, repeats);
  write_line({.name = "the same, sent during the backward" + all_ranks(),
              .ours = overlap.ours,
              .peer = overlap.peer,
              .peer_name = "sent after the backward",
              .spread = overlap.spread});
  const auto watched_step = [&] {
    const OverflowWatch watch;
    steps.overlapped();
  };
  const Pair watched = in_turns(watched_step, overlapped, 1, repeats);
  write_line({.name = "the same, to name the rank of an overflow" + all_ranks(),
              .ours = watched.ours,
              .peer = watched.peer,
              .peer_name = "without",
              .spread = watched.spread});
  const Pair alone = in_turns(
      overlapped, [&] { steps.plain(); }, 1, repeats);
  write_line({.name = "the same" + all_ranks(),
              .ours = alone.ours,
              .peer = alone.peer,
              .peer_name = "no communication at all",
              .spread = alone.spread});
}

void count_what_steps_do(Steps& steps) {
  write_line({.name = "collectives of a step" + all_ranks(),
              .unit = "count",
              .ours = collectives_of([&] { steps.overlapped(); }),
              .peer = collectives_of([&] { steps.by_hand(); }),
              .peer_name = "one per tensor",
              .target = 1.0});
  const std::int64_t copied = steps.copied_bytes();
  steps.overlapped();
  write_line({.name = "gradient bytes copied in a step after the first" + all_ranks(),
              .unit = "bytes",
              .ours = static_cast<double>(steps.copied_bytes() - copied),
              .peer = 0,
              .peer_name = "none",
              .target = 1.0});
}

// A training made anew for each measurement: while any of them looks for overflows, those that
// reduce gradients look, too.
class RankTraining {
 public:
  RankTraining(bool wrapped, amp::Options options)
      : sgd_(net_->parameters(), optim::FusedSGDOptions(1e-3)),
        handles_(amp::initialize(net_, sgd_, std::move(options))) {
    if (wrapped) ddp_.emplace(model(), DDPOptions{.message_size = 1'200'000});
  }

  void step(const at::Tensor& x) {
    optimizer().zero_grad();
    const at::Tensor y = ddp_ ? (*ddp_)(x) : model()(x);
    amp::scale_loss(y.square().mean(), optimizer()).backward();
    optimizer().step();
  }

 private:
  using Model = amp::Model<torch::nn::Sequential>;
  Model& model() { return handles_.first; }
  amp::Optimizer& optimizer() { return handles_.second; }

  torch::nn::Sequential net_ = layers();
  optim::FusedSGD sgd_;
  std::pair<Model, amp::Optimizer> handles_;
  std::optional<DistributedDataParallel<Model>> ddp_;
};

// The cost of looking for infinities and agreeing on them.
void overflow_flags(int repeats) {
  const at::Tensor x = torch::randn({128, 768});
  const std::string ranks = ", " + std::to_string(world_size()) + " ranks";
  const amp::Options looks{.opt_level = "O0", .verbosity = 0, .check_finite = true};
  const amp::Options looks_away{.opt_level = "O0", .verbosity = 0, .check_finite = false};
  amp::Options alone = looks;
  alone.overflow_group = amp::OverflowGroup::none();
  const auto compare = [&](const std::string& name, bool wrapped, const amp::Options& mine,
                           const char* peer_name, const amp::Options& others) {
    std::array<double, 2> collectives{};
    const auto measured = [&](const amp::Options& options, double& count) {
      RankTraining training(wrapped, options);
      for (int i = 0; i < 2; ++i) training.step(x);
      count = collectives_of([&] { training.step(x); });
      return seconds_together([&] { training.step(x); }, 4);
    };
    const Pair pair = take_turns([&] { return measured(mine, collectives[0]); },
                                 [&] { return measured(others, collectives[1]); }, repeats);
    write_line({.name = name + ranks,
                .ours = pair.ours,
                .peer = pair.peer,
                .peer_name = peer_name,
                .spread = pair.spread});
    write_line({.name = "collectives of that step" + ranks,
                .unit = "count",
                .ours = collectives[0],
                .peer = collectives[1],
                .peer_name = peer_name});
  };
  compare("step of 12 x Linear(768), overflows looked for", true, looks, "not looked for",
          looks_away);
  compare("such a step of each rank's own, overflows agreed on", false, looks,
          "each rank for itself", alone);
  const at::Tensor flag = torch::zeros({1});
  const auto nothing = [] { return std::optional<std::int64_t>(); };
  const at::Tensor number = torch::zeros({1}, at::kDouble);
  Lane& gloo = world().internals().calls();
  const Pair pair = in_turns([&] { agree_overflow(flag, nothing, world()); },
                             [&] { gloo.all_reduce(number)->wait(); }, 200, repeats);
  write_line({.name = "a flag agreed on" + ranks,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "Gloo's sum of one double",
              .spread = pair.spread});
}

// Four convolutions with a batch norm each.
torch::nn::Sequential convolutions(bool synchronised) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(i == 0 ? 3 : 32, 32, 3).padding(1)));
    net->push_back(torch::nn::BatchNorm2d(32));
    net->push_back(torch::nn::ReLU());
  }
  return synchronised ? convert_syncbn_model(net) : net;
}

void batch_norms(int repeats) {
  const at::Tensor x = torch::randn({8, 3, 32, 32});
  torch::nn::Sequential together = convolutions(true);
  torch::nn::Sequential alone = convolutions(false);
  const auto step = [&](torch::nn::Sequential& net) {
    net->zero_grad(false);
    net->forward(x).square().mean().backward();
  };
  const std::string ranks = ", " + std::to_string(world_size()) + " ranks";
  write_line({.name = "collectives of 4 batch norms, forward and backward" + ranks,
              .unit = "count",
              .ours = collectives_of([&] { step(together); }),
              .peer = 2 * 4,
              .peer_name = "one per layer and direction",
              .target = 1.0});
  const Pair pair = in_turns([&] { step(together); }, [&] { step(alone); }, 1, repeats);
  write_line({.name = "4 x (Conv2d(32), SyncBatchNorm, ReLU) of 8x3x32x32" + ranks,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "with batch norms of each rank's own",
              .spread = pair.spread});
}

}  // namespace

double seconds_together(const std::function<void()>& function, int calls) {
  barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

void write_line(const Result& result) {
  if (rank() != 0) return;
  nlohmann::ordered_json line{{"case", result.name},           {"unit", result.unit},
                              {"ours", result.ours},           {"peer", result.peer},
                              {"peer_name", result.peer_name}, {"spread", result.spread}};
  if (result.target) line["target"] = *result.target;
  if (result.bytes) line["bytes"] = *result.bytes;
  std::cout << line.dump() << std::endl;
}

int run_parallel_rank(int repeats) {
  init_process_group();
  torch::manual_seed(rank());
  averages(repeats);
  ways(repeats);
  if (world_size() == 2) {
    Steps steps;
    time_steps(steps, repeats);
    count_what_steps_do(steps);
    overflow_flags(repeats);
  }
  batch_norms(repeats);
  destroy_process_group();
  return 0;
}

}  // namespace mezzo::bench
