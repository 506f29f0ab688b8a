// An exponential moving average of a model's weights, in float whatever the level.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>

#include "mezzo/checkpoint.h"
#include "mezzo/export.h"
#include "mezzo/model.h"

namespace mezzo {
namespace amp::detail {
class WeightAverage;
}

namespace amp {

/// Options of an Ema.
struct EmaOptions {
  /// The n-th update (from 0) weighs what was there by min(decay, (1 + n) / (10 + n)): a short
  /// training forgets its random beginning.
  bool warmup = false;
};

/// average = decay * average + (1 - decay) * weight, over all floating parameters of a model, from
/// its masters if there are any. Starts at the weights that the model has. Buffers are not
/// averaged. Copies share.
///
/// Given to `save_checkpoint` and `load_checkpoint` (`CheckpointOptions::averages`), it resumes to
/// the last bit.
///
/// Threads: belongs to the training loop.
class MEZZO_API Ema {
 public:
  /// Throws ConfigError for a decay outside of 0 to 1, and for an empty handle.
  Ema(const detail::ModelHandle& model, double decay, EmaOptions options = {});

  /// After `optimizer.step()`. If every optimizer of the model skipped since the last update,
  /// or had no gradients, nothing happens and the result is false. Throws Error while the averages
  /// are applied.
  bool update();

  /// The updates that counted.
  std::int64_t updates() const;

  /// The averages become the model's weights, for an evaluation. Throws Error if they are
  /// already.
  void apply();

  /// The weights are again what they were at `apply`, to the last bit, masters included. Throws
  /// Error without one.
  void restore();

  /// Are the averages the model's weights now?
  bool is_applied() const;

  /// Applies while it lives: `{ const auto swapped = ema.swapped(); evaluate(model); }`
  class MEZZO_API Swapped {
   public:
    explicit Swapped(Ema& ema);
    ~Swapped();
    Swapped(const Swapped&) = delete;
    Swapped& operator=(const Swapped&) = delete;

   private:
    std::shared_ptr<detail::WeightAverage> average_;
  };
  [[nodiscard]] Swapped swapped() { return Swapped(*this); }  ///< Applied until it is gone.

  /// The averages by the parameters' names, float or double. They share memory with this object.
  torch::OrderedDict<std::string, at::Tensor> averages() const;

  /// For the library itself.
  const std::shared_ptr<detail::WeightAverage>& shared() const noexcept { return average_; }

 private:
  std::shared_ptr<detail::WeightAverage> average_;
};

}  // namespace amp
}  // namespace mezzo
