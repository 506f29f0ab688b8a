// Optimizers whose step is one pass over memory: unscale, update and low-precision copy of all
// parameters together, in the instructions of this processor.
//
// Each is an ordinary torch::optim::Optimizer: groups, schedulers, closures, zero_grad and
// serialization work as with LibTorch's own. Weights may be float, half, bfloat16 or double, dense
// in any layout; gradients any of these; state is float (double for double weights). Under
// mezzo::amp they take low-precision gradients as they are and write the low-precision weights that
// the model computes with.
//
// Options are checked at construction and again at each step, where schedulers may have changed
// them: out of range is a ConfigError that tells the range. Everything a step could find wrong (a
// sparse gradient, a wrong type, tensors that overlap) it finds before it changes anything. An
// optimizer belongs to one thread at a time; its step uses at::get_num_threads() threads.
//
//   mezzo::optim::FusedAdam adam(net->parameters(), mezzo::optim::FusedAdamOptions(1e-3));
#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::optim {

/// What all options of LibTorch's optimizers derive from.
using Options = torch::optim::OptimizerOptions;
/// Parameters with options of their own, as with LibTorch's optimizers.
using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

class StepWork;
class StepContext;

/// The base of all below.
class MEZZO_API FusedOptimizer : public torch::optim::Optimizer {
 public:
  ~FusedOptimizer() override;

  /// One update of all parameters that have a gradient. The closure, if any, is called first with
  /// gradients enabled; its result is returned.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// The same, unless `found_inf` is not zero: then nothing moves, no weight, no state, no step
  /// counter. Gradients are multiplied by `inv_scale` on the way. Both have one element, int or
  /// float, on the parameters' device, and are read when the step runs. Undefined: never skip, no
  /// scale.
  void step_unless(const at::Tensor& found_inf, const at::Tensor& inv_scale = {});

 protected:
  FusedOptimizer(const ParamGroups& groups, std::unique_ptr<Options> defaults);

 private:
  friend struct StepAccess;
  virtual const char* name() const = 0;
  virtual void check(const Options&) const = 0;
  virtual double max_grad_norm(const Options&) const { return 0; }
  virtual void update(StepWork&) = 0;
  std::unique_ptr<StepWork> work_;
};

/// FusedAdam's: `adam_w_mode` decouples the weight decay (Loshchilov and Hutter 2019), without it
/// the decay joins the gradient (Kingma and Ba 2015).
struct MEZZO_API FusedAdamOptions
    : public torch::optim::OptimizerCloneableOptions<FusedAdamOptions> {
  FusedAdamOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as torch::optim
  /// The decay rates of the two moments.
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, adam_w_mode) = true;
  TORCH_ARG(bool, bias_correction) = true;
  /// sqrt(v + eps) in place of sqrt(v) + eps, v after bias correction.
  TORCH_ARG(bool, eps_inside_sqrt) = false;
  /// Above 0: gradients are scaled so that the norm over all groups is at most this.
  TORCH_ARG(double, max_grad_norm) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(double value) override;
};

/// Adam and AdamW. State and archives are those of torch::optim::Adam and AdamW, both ways.
class MEZZO_API FusedAdam : public FusedOptimizer {
 public:
  explicit FusedAdam(const ParamGroups& groups, FusedAdamOptions defaults = {});
  explicit FusedAdam(std::vector<at::Tensor> params, FusedAdamOptions defaults = {});
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const override { return "FusedAdam"; }
  void check(const Options&) const override;
  double max_grad_norm(const Options&) const override;
  void update(StepWork&) override;
};

/// FusedSGD's; the learning rate has no default.
struct MEZZO_API FusedSGDOptions : public torch::optim::OptimizerCloneableOptions<FusedSGDOptions> {
  FusedSGDOptions(double lr);  // NOLINT(google-explicit-constructor): as torch::optim
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;
  /// The decay is added to the step instead of the gradient, so that momentum does not carry it.
  TORCH_ARG(bool, wd_after_momentum) = false;
  /// As FusedAdamOptions'.
  TORCH_ARG(double, max_grad_norm) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(double value) override;
};

/// Stochastic gradient descent. State and archives are those of torch::optim::SGD, both ways.
class MEZZO_API FusedSGD : public FusedOptimizer {
 public:
  FusedSGD(const ParamGroups& groups, FusedSGDOptions defaults);
  FusedSGD(std::vector<at::Tensor> params, FusedSGDOptions defaults);
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const override { return "FusedSGD"; }
  void check(const Options&) const override;
  double max_grad_norm(const Options&) const override;
  void update(StepWork&) override;
};

}  // namespace mezzo::optim
