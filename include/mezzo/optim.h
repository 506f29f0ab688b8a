// Optimizers whose step is one pass over memory: unscale, update and low-precision copy of all
// parameters together, in the instructions of this processor.
//
// Each is an ordinary torch::optim::Optimizer: groups, schedulers, closures, zero_grad and
// serialization work as with LibTorch's own. Weights may be float, half, bfloat16 or double, dense
// in any layout; gradients any of these; state is float (double for double weights). Under
// mezzo::amp the step writes the low-precision weights that the model computes with, and with
// Options::defer_unscale takes low-precision gradients as they are and looks at them itself.
//
// Options are checked at construction and again at each step, where schedulers may have changed
// them: out of range is a ConfigError that names the range. Everything a step could find wrong (a
// sparse gradient, a wrong type, tensors that overlap) it finds before it changes anything. An
// optimizer belongs to one thread at a time; its step uses at::get_num_threads() threads.
//
//   mezzo::optim::FusedAdam adam(net->parameters(), mezzo::optim::FusedAdamOptions(1e-3));
#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/multi_tensor.h"

namespace torch::optim {
struct AdagradParamState;
struct AdamParamState;
struct SGDParamState;
}  // namespace torch::optim

namespace mezzo::optim {

/// The base of all options of LibTorch's optimizers.
using Options = torch::optim::OptimizerOptions;
/// Parameters with options of their own, as with LibTorch's optimizers.
using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// The base of the options below: learning-rate schedules and archives, through Derived::each.
template <typename Derived>
struct MEZZO_API FusedOptions : public torch::optim::OptimizerCloneableOptions<Derived> {
  /// The learning rate, for schedulers.
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double value) override { static_cast<Derived&>(*this).lr(value); }
  /// Options that the archive does not have stay as they are.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

class StepWork;
class StepContext;

/// The base of all below.
class MEZZO_API FusedOptimizer : public torch::optim::Optimizer {
 public:
  ~FusedOptimizer() override;
  /// As LibTorch's own; not while mezzo::amp holds it.
  FusedOptimizer(FusedOptimizer&&) noexcept;
  FusedOptimizer& operator=(FusedOptimizer&&) noexcept;

  /// One update of all parameters that have a gradient. The closure, if any, is called first with
  /// gradients enabled; its result is returned.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// As above, unless `found_inf` is not zero: then nothing moves, no weight, no state, no step
  /// counter. Gradients are multiplied by `inv_scale` on the way. Both have one element, int or
  /// float, on the parameters' device, and are read when the step runs. Undefined: never skip, no
  /// scale.
  void step_unless(const at::Tensor& found_inf, const at::Tensor& inv_scale = {});

  /// As LibTorch's own; under LibTorch 2.15 too, the group keeps the options that it has. Options
  /// out of range, or of another optimizer, are a ConfigError, and nothing is added.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

 protected:
  FusedOptimizer(const ParamGroups& groups, std::unique_ptr<Options> defaults);

 private:
  friend struct StepAccess;
  virtual const char* name() const = 0;
  virtual void check(const Options&) const = 0;
  virtual double max_grad_norm(const Options&) const = 0;
  virtual void update(StepWork&) = 0;
  std::unique_ptr<StepWork> work_;
};

/// The base of the optimizers below: each has options of its own and keeps a State for each
/// parameter, in archives of torch::optim's layout.
template <typename OwnOptions, typename State>
class MEZZO_API FusedOptimizerOf : public FusedOptimizer {
 public:
  /// Groups without options of their own get the defaults.
  explicit FusedOptimizerOf(const ParamGroups& groups, OwnOptions defaults = {});
  explicit FusedOptimizerOf(std::vector<at::Tensor> params, OwnOptions defaults = {});

  void save(torch::serialize::OutputArchive& archive) const override;
  /// An archive of other groups, or with states that do not fit their parameters, is an Error, and
  /// nothing is loaded.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const final { return OwnOptions::kOptimizer; }
  void check(const Options&) const final;
  double max_grad_norm(const Options&) const final;
  virtual void check_state(const State&, const at::Tensor& param, const std::string& of) const = 0;
};

/// FusedAdam's: `adam_w_mode` decouples the weight decay (Loshchilov and Hutter 2019), without it
/// the decay joins the gradient (Kingma and Ba 2015).
struct MEZZO_API FusedAdamOptions : public FusedOptions<FusedAdamOptions> {
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
  static constexpr const char* kOptimizer = "FusedAdam";
  /// An option out of its range is a ConfigError.
  void check() const;
  /// visit(name, value) for each option.
  template <typename Self, typename Visit>
  static void each(Self& self, const Visit& visit) {
    visit("lr", self.lr());
    visit("betas", self.betas());
    visit("eps", self.eps());
    visit("weight_decay", self.weight_decay());
    visit("amsgrad", self.amsgrad());
    visit("adam_w_mode", self.adam_w_mode());
    visit("bias_correction", self.bias_correction());
    visit("eps_inside_sqrt", self.eps_inside_sqrt());
    visit("max_grad_norm", self.max_grad_norm());
  }
};

/// Adam and AdamW. State and archives are those of torch::optim::Adam and AdamW, both ways.
class MEZZO_API FusedAdam
    : public FusedOptimizerOf<FusedAdamOptions, torch::optim::AdamParamState> {
 public:
  using FusedOptimizerOf::FusedOptimizerOf;

 private:
  void check_state(const torch::optim::AdamParamState&, const at::Tensor& param,
                   const std::string& of) const override;
  void update(StepWork&) override;
};

/// FusedSGD's; the learning rate has no default.
struct MEZZO_API FusedSGDOptions : public FusedOptions<FusedSGDOptions> {
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
  static constexpr const char* kOptimizer = "FusedSGD";
  /// An option out of its range is a ConfigError.
  void check() const;
  /// visit(name, value) for each option.
  template <typename Self, typename Visit>
  static void each(Self& self, const Visit& visit) {
    visit("lr", self.lr());
    visit("momentum", self.momentum());
    visit("dampening", self.dampening());
    visit("weight_decay", self.weight_decay());
    visit("nesterov", self.nesterov());
    visit("wd_after_momentum", self.wd_after_momentum());
    visit("max_grad_norm", self.max_grad_norm());
  }
};

/// Stochastic gradient descent. State and archives are those of torch::optim::SGD, both ways.
class MEZZO_API FusedSGD : public FusedOptimizerOf<FusedSGDOptions, torch::optim::SGDParamState> {
 public:
  using FusedOptimizerOf::FusedOptimizerOf;

 private:
  void check_state(const torch::optim::SGDParamState&, const at::Tensor& param,
                   const std::string& of) const override;
  void update(StepWork&) override;
};

/// FusedLAMB's.
struct MEZZO_API FusedLAMBOptions : public FusedOptions<FusedLAMBOptions> {
  FusedLAMBOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as torch::optim
  /// The decay rates of the two moments.
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0.01;
  /// Gradients of this group are scaled as if the norm over all groups had to be at most this; 0:
  /// no bound.
  TORCH_ARG(double, max_grad_norm) = 1.0;
  TORCH_ARG(bool, adam_w_mode) = true;
  TORCH_ARG(bool, bias_correction) = true;
  /// The first moment takes (1 - beta1) of the gradient; without, all of it.
  TORCH_ARG(bool, grad_averaging) = true;
  /// The trust ratio also where the weight decay is 0.
  TORCH_ARG(bool, use_nvlamb) = false;

 public:
  static constexpr const char* kOptimizer = "FusedLAMB";
  /// An option out of its range is a ConfigError.
  void check() const;
  /// visit(name, value) for each option.
  template <typename Self, typename Visit>
  static void each(Self& self, const Visit& visit) {
    visit("lr", self.lr());
    visit("betas", self.betas());
    visit("eps", self.eps());
    visit("weight_decay", self.weight_decay());
    visit("max_grad_norm", self.max_grad_norm());
    visit("adam_w_mode", self.adam_w_mode());
    visit("bias_correction", self.bias_correction());
    visit("grad_averaging", self.grad_averaging());
    visit("use_nvlamb", self.use_nvlamb());
  }
};

/// LAMB (You et al. 2020): Adam's step, per tensor as long as the weight. Leaves gradients alone.
class MEZZO_API FusedLAMB
    : public FusedOptimizerOf<FusedLAMBOptions, torch::optim::AdamParamState> {
 public:
  using FusedOptimizerOf::FusedOptimizerOf;

 private:
  void check_state(const torch::optim::AdamParamState&, const at::Tensor& param,
                   const std::string& of) const override;
  void update(StepWork&) override;
};

/// FusedNovoGrad's.
struct MEZZO_API FusedNovoGradOptions : public FusedOptions<FusedNovoGradOptions> {
  FusedNovoGradOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as torch::optim
  /// The decay rates of the two moments.
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(bool, grad_averaging) = true;
  /// The decay joins the normalised gradient, so that the moment carries it.
  TORCH_ARG(bool, reg_inside_moment) = false;
  /// The second moment starts at zero, not at the first gradient's norm.
  TORCH_ARG(bool, init_zero) = false;
  /// 2, or 0 for the largest magnitude.
  TORCH_ARG(std::int64_t, norm_type) = 2;
  /// As FusedAdamOptions'.
  TORCH_ARG(double, max_grad_norm) = 0;

 public:
  static constexpr const char* kOptimizer = "FusedNovoGrad";
  /// An option out of its range is a ConfigError.
  void check() const;
  /// visit(name, value) for each option.
  template <typename Self, typename Visit>
  static void each(Self& self, const Visit& visit) {
    visit("lr", self.lr());
    visit("betas", self.betas());
    visit("eps", self.eps());
    visit("weight_decay", self.weight_decay());
    visit("bias_correction", self.bias_correction());
    visit("grad_averaging", self.grad_averaging());
    visit("reg_inside_moment", self.reg_inside_moment());
    visit("init_zero", self.init_zero());
    visit("norm_type", self.norm_type());
    visit("max_grad_norm", self.max_grad_norm());
  }
};

/// NovoGrad (Ginsburg et al. 2019): one second moment per tensor, the running norm of its gradient.
class MEZZO_API FusedNovoGrad
    : public FusedOptimizerOf<FusedNovoGradOptions, torch::optim::AdamParamState> {
 public:
  using FusedOptimizerOf::FusedOptimizerOf;

 private:
  void check_state(const torch::optim::AdamParamState&, const at::Tensor& param,
                   const std::string& of) const override;
  void update(StepWork&) override;
};

/// FusedAdagrad's.
struct MEZZO_API FusedAdagradOptions : public FusedOptions<FusedAdagradOptions> {
  FusedAdagradOptions(double lr = 1e-2);  // NOLINT(google-explicit-constructor): as torch::optim
  TORCH_ARG(double, lr) = 1e-2;
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;
  /// The weight decay is decoupled, as AdamW's; without it joins the gradient.
  TORCH_ARG(bool, adagrad_w_mode) = false;
  /// As FusedAdamOptions'.
  TORCH_ARG(double, max_grad_norm) = 0;

 public:
  static constexpr const char* kOptimizer = "FusedAdagrad";
  /// An option out of its range is a ConfigError.
  void check() const;
  /// visit(name, value) for each option.
  template <typename Self, typename Visit>
  static void each(Self& self, const Visit& visit) {
    visit("lr", self.lr());
    visit("lr_decay", self.lr_decay());
    visit("weight_decay", self.weight_decay());
    visit("initial_accumulator_value", self.initial_accumulator_value());
    visit("eps", self.eps());
    visit("adagrad_w_mode", self.adagrad_w_mode());
    visit("max_grad_norm", self.max_grad_norm());
  }
};

/// Adagrad (Duchi et al. 2011). State and archives are those of torch::optim::Adagrad, both ways.
class MEZZO_API FusedAdagrad
    : public FusedOptimizerOf<FusedAdagradOptions, torch::optim::AdagradParamState> {
 public:
  using FusedOptimizerOf::FusedOptimizerOf;

 private:
  void check_state(const torch::optim::AdagradParamState&, const at::Tensor& param,
                   const std::string& of) const override;
  void update(StepWork&) override;
};

/// LARC's.
struct LARCOptions {
  /// How long a step may be, as a share of the weight's norm.
  double trust_coefficient = 0.02;
  /// The rate is at most the group's learning rate (LARC); without, it multiplies it (LARS).
  bool clip = true;
  double eps = 1e-8;
};

/// Layer-wise adaptive rates (You et al. 2017) around any optimizer, which must outlive it. Before
/// the inner step each gradient becomes (g + weight_decay * p) * rate, in place, with rate =
/// trust_coefficient * |p| / (|g| + |p| * weight_decay + eps); the inner optimizer does no decay
/// meanwhile. Where either norm is zero the decay is added and nothing is scaled. The decay is
/// known of torch::optim's optimizers and those above; options of any other type count as 0 here,
/// and their optimizer goes on doing whatever decay it does. LBFGS, which needs a closure, is a
/// ConfigError.
class MEZZO_API LARC {
 public:
  explicit LARC(torch::optim::Optimizer& inner, LARCOptions options = {});
  /// The optimizer that does the update.
  torch::optim::Optimizer& inner() { return inner_; }

  /// Changes the gradients and takes the inner optimizer's step. A gradient that does not fit, a
  /// learning rate below 0 and, of the optimizers above, options out of range are a ConfigError
  /// before anything changes; where the inner step throws, the gradients stay changed.
  void step();

  /// The inner optimizer's.
  void zero_grad(bool set_to_none = true);
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();

 private:
  torch::optim::Optimizer& inner_;
  LARCOptions options_;
};

}  // namespace mezzo::optim
