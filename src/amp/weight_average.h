// The state behind an Ema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "amp/safetensors.h"
#include "amp/session.h"
#include "core/torch.h"
#include "mezzo/ema.h"

namespace mezzo::amp::detail {

/// A moving average of a model's parameters, and the weights that it took the place of.
class WeightAverage {
 public:
  using Values = torch::OrderedDict<std::string, at::Tensor>;

  WeightAverage(ModelHandle model, double decay, amp::EmaOptions options);

  bool update();
  void apply();
  void restore();
  /// Says what a destructor met.
  void tell_failure(const std::string& what) const;
  bool is_applied() const noexcept { return replaced_.has_value(); }
  std::int64_t updates() const noexcept { return updates_; }
  const Values& averages() const noexcept { return averages_; }

  /// In a checkpoint, under a prefix. Saving throws Error while the averages are applied.
  void save(const std::string& prefix, SafetensorsFile& file) const;
  /// Throws Error for a file without averages of these parameters.
  void check(const std::string& prefix, const SafetensorsFile& file, const std::string& path) const;
  void load(const std::string& prefix, const SafetensorsFile& file);

 private:
  /// The steps of the optimizers that own some of the model's parameters.
  struct Steps {
    std::int64_t made = 0;
    std::int64_t not_made = 0;  // skipped, or without gradients
  };
  Steps count_steps() const;
  void refuse_in_capture() const;
  Session& session() const;
  torch::nn::Module& module() const;

  ModelHandle model_;
  double decay_;
  amp::EmaOptions options_;
  Values averages_;
  std::int64_t updates_ = 0;
  Steps seen_;
  std::optional<Values> replaced_;
};

}  // namespace mezzo::amp::detail
