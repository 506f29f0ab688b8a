// The training loop.
#pragma once

#include <optional>
#include <vector>

#include "imagenet/train/data.h"
#include "imagenet/train/meter.h"
#include "imagenet/train/position.h"
#include "imagenet/train/profile.h"
#include "imagenet/train/recipe.h"
#include "imagenet/train/reporter.h"
#include "imagenet/train/settings.h"

namespace examples::imagenet {

class Trainer {
 public:
  /// Opens data, makes the network and resumes, where that was asked for. With several ranks the
  /// process group is there already.
  explicit Trainer(const Settings& settings);

  /// Trains to the end, or evaluates. Returns the exit code: 0, or 128 plus the signal that it was
  /// stopped by after a checkpoint was written.
  int run();

  /// The same on all ranks.
  std::vector<at::Tensor> weights() const { return network_->parameters(); }

 private:
  enum class Stopped { kNo, kSignal, kProfile };

  Stopped train_epoch();
  void train_step(const TensorBatch& batch);
  void report_step();
  /// Nothing: a signal came.
  std::optional<Figures> evaluate();
  bool finish_epoch(const Figures& test);
  /// On rank 0, where there is a file. False, and told: it could not be written.
  bool save(const std::string& file);
  int stop();
  Origin origin() const;
  std::int64_t images_per_step() const;

  Settings s_;
  Share share_;
  at::Device device_;
  std::unique_ptr<Reporter> reporter_;
  Data data_;
  std::shared_ptr<Network> network_;
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::unique_ptr<Recipe> recipe_;
  Meter meter_;
  Profile profile_;
  Position position_;
  at::Tensor loss_;  // of the last step
  std::int64_t steps_since_ = 0;
};

}  // namespace examples::imagenet
