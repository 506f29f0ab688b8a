// The cost for several processes, in a training step of the demo (examples/fashion_mnist.cpp), to
// decide together, and to compare their weights.
#include <torch/torch.h>

#include <optional>
#include <string>
#include <utility>

#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "parallel_ranks.h"

namespace mezzo::bench {
namespace {

constexpr std::int64_t kImagesOfARank = 64;  // half a batch of the demo

torch::nn::Sequential demo_network() {
  torch::manual_seed(1);
  const auto convolution = [](std::int64_t in, std::int64_t out, std::int64_t size,
                              std::int64_t by) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, size).stride(by).padding(size / 2).bias(false));
  };
  return torch::nn::Sequential(
      convolution(1, 32, 5, 2), torch::nn::BatchNorm2d(32), torch::nn::ReLU(),
      convolution(32, 64, 3, 2), torch::nn::BatchNorm2d(64), torch::nn::ReLU(),
      convolution(64, 128, 3, 1), torch::nn::BatchNorm2d(128), torch::nn::ReLU(),
      torch::nn::Flatten(), torch::nn::Linear(128 * 7 * 7, 10));
}

class DemoTraining {
 public:
  explicit DemoTraining(amp::Options options)
      : sgd_(net_->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9)),
        handles_(amp::initialize(net_, sgd_, std::move(options))),
        ddp_(handles_.first) {}

  void step() {
    auto& optimizer = handles_.second;
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(ddp_(images_), labels_);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  }

 private:
  using Model = amp::Model<torch::nn::Sequential>;

  torch::nn::Sequential net_ = demo_network();
  torch::optim::SGD sgd_;
  std::pair<Model, amp::Optimizer> handles_;
  parallel::DistributedDataParallel<Model> ddp_;
  at::Tensor images_ = torch::randn({kImagesOfARank, 1, 28, 28});
  at::Tensor labels_ = torch::randint(10, {kImagesOfARank});
};

// Each measurement is of a training that is made anew, so that neither has the better memory.
void compare(const std::string& name, const amp::Options& mine, const std::string& peer_name,
             const amp::Options& others, double target, int repeats) {
  constexpr int kSteps = 10;
  const auto measured = [](const amp::Options& options) {
    DemoTraining training(options);
    for (int i = 0; i < 2; ++i) training.step();
    return seconds_together([&] { training.step(); }, kSteps);
  };
  const Pair pair =
      take_turns([&] { return measured(mine); }, [&] { return measured(others); }, repeats);
  write_line({.name = name,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = peer_name,
              .spread = pair.spread,
              .target = target});
}

}  // namespace

int run_demo_rank(int repeats) {
  parallel::init_process_group();
  const std::string ranks = ", " + std::to_string(parallel::world_size()) + " ranks";
  for (const std::string level : {"O1", "O2"}) {
    const amp::Options together{.opt_level = level, .verbosity = 0};
    amp::Options alone = together;
    alone.overflow_group = amp::OverflowGroup::none();
    amp::Options compared = together;
    compared.expect_equal_every = 100;
    const std::string step = "step of the demo at " + level;
    compare(step + ", overflows agreed on" + ranks, together, "each rank for itself", alone, 0.97,
            repeats);
    compare(step + ", weights compared every 100 steps" + ranks, compared, "never", together, 0.97,
            repeats);
  }
  parallel::destroy_process_group();
  return 0;
}

}  // namespace mezzo::bench
