// The cost of the training handles beside the network: switched off, and for giving back what a
// skipped step must not change.
#include <torch/torch.h>

#include <memory>

#include "amp_instructions.h"
#include "callgrind.h"
#include "mezzo/amp.h"
#include "mezzo/hardware.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

/// The demo's network: convolutions and batch norms.
struct PictureNetImpl : torch::nn::Module {
  PictureNetImpl() {
    using Options = torch::nn::Conv2dOptions;
    std::int64_t channels = 1;
    for (const Options& options : {Options(1, 32, 5).stride(2).padding(2).bias(false),
                                   Options(32, 64, 3).stride(2).padding(1).bias(false),
                                   Options(64, 128, 3).padding(1).bias(false)}) {
      features->push_back(torch::nn::Conv2d(options));
      channels = options.out_channels();
      features->push_back(torch::nn::BatchNorm2d(channels));
      features->push_back(torch::nn::ReLU());
    }
    register_module("features", features);
    classify = register_module("classify", torch::nn::Linear(channels * 7 * 7, 10));
  }
  at::Tensor forward(const at::Tensor& x) { return classify(features->forward(x).flatten(1)); }
  static at::Tensor input(std::int64_t batch) { return torch::randn({batch, 1, 28, 28}); }

  torch::nn::Sequential features;
  torch::nn::Linear classify{nullptr};
};
TORCH_MODULE(PictureNet);

/// So small that whatever is added to a step shows.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl()
      : first(register_module("first", torch::nn::Linear(64, 64))),
        norm(register_module("norm", torch::nn::BatchNorm1d(64))),
        second(register_module("second", torch::nn::Linear(64, 10))) {}
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  static at::Tensor input(std::int64_t batch) { return torch::randn({batch, 64}); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(SmallNet);

/// One network with its data, trained with handles or without.
template <typename Net>
class LevelTraining {
 public:
  explicit LevelTraining(std::int64_t batch)
      : x_(Net::ContainedType::input(batch)), target_(torch::randint(10, {batch})) {}

  /// With handles of these options.
  LevelTraining(std::int64_t batch, amp::Options options) : LevelTraining(batch) {
    options.verbosity = 0;
    handles_.emplace(amp::initialize(net_, sgd_, std::move(options)));
  }

  void step() {
    if (handles_) {
      auto& [model, optimizer] = *handles_;
      optimizer.zero_grad();
      amp::scale_loss(torch::cross_entropy_loss(model(x_), target_), optimizer).backward();
      optimizer.step();
    } else {
      sgd_.zero_grad();
      torch::cross_entropy_loss(net_(x_), target_).backward();
      sgd_.step();
    }
  }

 private:
  Net net_;
  torch::optim::SGD sgd_{net_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
  at::Tensor x_;
  at::Tensor target_;
  std::optional<std::pair<amp::Model<Net>, amp::Optimizer>> handles_;
};

amp::Options disabled() {
  return {.enabled = false, .opt_level = "O1"};
}

amp::Options protecting(bool protects) {
  return {.opt_level = "O1", .protect_batchnorm = protects};
}

// Both sides of a case: ours, and what it is compared with.
struct LevelCase {
  const char* name;
  const char* peer_name;
  std::function<void()> ours;
  std::function<void()> peer;
  double most;  // of ours, in terms of the peer
};

template <typename Net>
std::function<void()> steps_of(std::int64_t batch, std::optional<amp::Options> options) {
  auto training = options ? std::make_shared<LevelTraining<Net>>(batch, *options)
                          : std::make_shared<LevelTraining<Net>>(batch);
  return [training] { training->step(); };
}

std::vector<LevelCase> cases() {
  // Far below the demo's 128: callgrind takes its time, and what is added weighs more here.
  constexpr std::int64_t kBatch = 8;
  return {
      {"enabled = false, a step of the demo's network, batch 8", "without Mezzo",
       steps_of<PictureNet>(kBatch, disabled()), steps_of<PictureNet>(kBatch, std::nullopt), 1.01},
      {"enabled = false, a step of a small network, batch 32", "without Mezzo",
       steps_of<SmallNet>(32, disabled()), steps_of<SmallNet>(32, std::nullopt), 1.01},
      {"a skipped step changes nothing: a step of the demo's network, O1, batch 8",
       "protect_batchnorm = false", steps_of<PictureNet>(kBatch, protecting(true)),
       steps_of<PictureNet>(kBatch, protecting(false)), 1.02}};
  // A std::function deletes what it holds.
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

void prepare() {
  at::set_num_threads(1);
  torch::manual_seed(0);
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
}

}  // namespace

int count_amp_instructions() {
  prepare();
  for (const LevelCase& each : cases()) {
    count_instructions(std::string(each.name) + "/ours", 2, each.ours);
    count_instructions(std::string(each.name) + "/peer", 2, each.peer);
  }
  return 0;
}

void run_amp(Report& report, const Settings& settings) {
  const std::map<std::string, double> counts = counted_instructions("amp");
  prepare();
  for (const LevelCase& each : cases()) {
    report.add({.name = each.name,
                .unit = "instructions",
                .ours = counts.at(std::string(each.name) + "/ours"),
                .peer = counts.at(std::string(each.name) + "/peer"),
                .peer_name = each.peer_name,
                .target = 1 / each.most});
    const Pair pair = interleave(each.ours, each.peer, settings.repeats);
    report.add({.name = each.name,
                .ours = pair.ours,
                .peer = pair.peer,
                .peer_name = each.peer_name,
                .spread = pair.spread});
  }
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
}

}  // namespace mezzo::bench
