// Whole training steps at every level: processor time and memory of tensors, against float and
// against LibTorch's own autocast of the same type.
#include <torch/torch.h>

#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "allocations.h"
#include "mezzo/amp.h"
#include "native_autocast.h"
#include "suites.h"
#include "train_networks.h"

namespace mezzo::bench {
namespace {

// A network in training, in one of the ways that are compared.
class Training {
 public:
  explicit Training(const TrainNetworkRow& row) {
    torch::manual_seed(0);
    net_ = row.make();
    adam_.emplace(net_->parameters(), torch::optim::AdamOptions(1e-4));
  }
  virtual ~Training() = default;
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  virtual void step() {
    adam_->zero_grad();
    net_->loss(net_->forward(net_->input())).backward();
    adam_->step();
  }

  double numbers() const {
    double all = 0;
    for (const at::Tensor& parameter : net_->parameters())
      all += static_cast<double>(parameter.numel());
    return all;
  }

  // The most bytes of tensors that a step has beside what was there before it.
  double peak_of_a_step() {
    const LiveBytes bytes;
    step();
    return static_cast<double>(bytes.peak());
  }

 protected:
  // NOLINTBEGIN(misc-non-private-member-variables-in-classes)
  std::shared_ptr<TrainNetwork> net_;
  std::optional<torch::optim::Adam> adam_;
  // NOLINTEND(misc-non-private-member-variables-in-classes)
};

class LevelOfMezzo : public Training {
 public:
  LevelOfMezzo(const TrainNetworkRow& row, const std::string& level)
      : Training(row),
        handles_(amp::initialize(net_, *adam_, {.opt_level = level, .verbosity = 0})) {}

  void step() override {
    auto& [model, optimizer] = handles_;
    optimizer.zero_grad();
    amp::scale_loss(net_->loss(model(net_->input())), optimizer).backward();
    optimizer.step();
  }

 private:
  std::pair<amp::Model<std::shared_ptr<TrainNetwork>>, amp::Optimizer> handles_;
};

// As a C++ program can write it today: with half, a loss scale and the check for overflows too.
class AutocastOfLibTorch : public Training {
 public:
  AutocastOfLibTorch(const TrainNetworkRow& row, at::ScalarType low) : Training(row), low_(low) {}

  void step() override {
    adam_->zero_grad();
    at::Tensor loss;
    {
      const NativeAutocast scope(low_);
      loss = net_->loss(net_->forward(net_->input()).to(at::kFloat));
    }
    if (low_ == at::kBFloat16) {
      loss.backward();
      adam_->step();
      return;
    }
    (loss * kScale).backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : net_->parameters())
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    at::Tensor found = torch::zeros({1});
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, torch::full({1}, 1 / kScale));
    if (found.item<float>() == 0) adam_->step();
  }

 private:
  static constexpr double kScale = 1024;
  at::ScalarType low_;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Steps for a fiftieth of a second at least, since the clock and the caches need some.
double seconds_a_step(Training& training) {
  constexpr double kLeast = 0.02;
  const double begun = processor_seconds();
  int steps = 0;
  double passed = 0;
  for (; steps == 0 || passed < kLeast; ++steps) {
    training.step();
    passed = processor_seconds() - begun;
  }
  return passed / steps;
}

void compare_times(Report& report, const Settings& settings, const std::string& name,
                   Training& ours, Training& peer, const std::string& peer_name,
                   std::optional<double> target) {
  const Pair pair = take_turns([&] { return seconds_a_step(ours); },
                               [&] { return seconds_a_step(peer); }, settings.repeats);
  report.add({.name = name,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = peer_name,
              .spread = pair.spread,
              .target = target});
}

struct LevelRow {
  const char* level;
  at::ScalarType low;
  const char* native;
};
constexpr LevelRow kLevels[] = {{"O1", at::kHalf, "LibTorch's autocast, float16"},
                                {"O2", at::kHalf, "LibTorch's autocast, float16"},
                                {"O4", at::kBFloat16, "LibTorch's autocast, bfloat16"},
                                {"O5", at::kBFloat16, "LibTorch's autocast, bfloat16"}};

void warm_up(Training& training) {
  for (int i = 0; i < 2; ++i) training.step();
}

void run_network(Report& report, const Settings& settings, const TrainNetworkRow& row,
                 const LevelRow& level) {
  const std::string name = std::string(row.name) + " at " + level.level;
  if (!settings.wants(name)) return;
  LevelOfMezzo ours(row, level.level);
  Training in_float(row);
  AutocastOfLibTorch native(row, level.low);
  warm_up(ours);
  warm_up(in_float);
  compare_times(report, settings, name + ", processor time", ours, in_float, "float", std::nullopt);
  try {
    warm_up(native);
  } catch (const std::exception& error) {  // oneDNN's are none of LibTorch's
    const std::string what = error.what();
    report.heading(name + ": " + level.native + " throws: " + what.substr(0, what.find('\n')));
    return;
  }
  compare_times(report, settings, name + ", processor time", ours, native, level.native, 1.0);
  // Ours keeps low copies of weights, or has low weights beside float masters.
  constexpr double kLowBytes = 2;
  report.add({.name = name + ", memory that a step takes",
              .unit = "bytes",
              .ours = ours.peak_of_a_step(),
              .peer = native.peak_of_a_step() + kLowBytes * native.numbers(),
              .peer_name = std::string(level.native) + ", and low weights",
              .target = 1.0});
}

}  // namespace

void run_train(Report& report, const Settings& settings) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const TrainNetworkRow& row : kTrainNetworks)
    for (const LevelRow& level : kLevels) run_network(report, settings, row, level);
  at::set_num_threads(threads);
}

}  // namespace mezzo::bench
