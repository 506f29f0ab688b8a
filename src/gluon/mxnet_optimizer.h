// An optimizer of MXNet over one list of parameters.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "gluon/update_rule.h"
#include "mezzo/gluon.h"

namespace mezzo::gluon {

/// Parameters by name, in order.
struct NamedParameters {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

/// Counts updates of each parameter, as MXNet does: what was left out falls behind. Its one group's
/// options hold the learning rate.
class MxnetOptimizer final : public torch::optim::Optimizer {
 public:
  /// Throws ConfigError for an unknown optimizer, argument or parameter name, weights that are
  /// neither float nor double, and an explicit rate that does not fit the schedule's warm-up.
  MxnetOptimizer(const NamedParameters& parameters, const std::string& optimizer,
                 const OptimizerParams& params, const TrainerOptions& options);

  /// Updates every parameter that has a gradient, as it stands.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Updates these parameters by their gradients times `rescale`.
  void update(const std::vector<std::size_t>& chosen, double rescale);

  std::string_view name() const { return rule_.name; }
  double rescale_grad() const { return hyper_.rescale_grad; }
  double learning_rate() const;
  void set_learning_rate(double learning_rate);

  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws Error, and changes nothing, for another optimizer's state or another network's.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Kept {
    std::vector<at::Tensor> state;  // empty before the first update
    std::int64_t count = 0;
  };
  const std::vector<at::Tensor>& weights() const { return param_groups_.front().params(); }
  bool fits_kernels(std::size_t parameter) const;
  void update_by_kernels(const std::vector<std::size_t>& chosen,
                         const std::vector<ParameterNumbers>& numbers);

  const UpdateRule& rule_;
  Hyper hyper_;
  std::shared_ptr<LRScheduler> schedule_;
  std::vector<std::string> names_;
  std::vector<double> lr_mult_, wd_mult_;
  std::vector<Kept> kept_;
  std::int64_t num_update_ = 0;
  kernels::Lists lists_;
};

}  // namespace mezzo::gluon
