#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "core/torch.h"
#include "mezzo/optim.h"
#include "optim/checks.h"
#include "optim/kinds.h"
#include "optim/step_access.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <string>
#include <vector>

namespace mezzo::optim {
namespace {

// While it lives the groups do no weight decay of their own.
class DecayTakenOver {
 public:
  explicit DecayTakenOver(ParamGroups& groups) {
    for (auto& group : groups) {
      decays_.push_back(weight_decay_of(group.options()));
      before_.push_back(decays_.back() == nullptr ? 0 : *decays_.back());
    }
    for (double* decay : decays_) {
      if (decay != nullptr) *decay = 0;
    }
  }
  ~DecayTakenOver() {
    for (std::size_t i = 0; i < decays_.size(); ++i) {
      if (decays_[i] != nullptr) *decays_[i] = before_[i];
    }
  }
  DecayTakenOver(const DecayTakenOver&) = delete;
  DecayTakenOver& operator=(const DecayTakenOver&) = delete;
  double before(std::size_t group) const { return before_[group]; }

 private:
  std::vector<double*> decays_;
  std::vector<double> before_;
};

void check_gradient(const at::Tensor& param, std::size_t group, std::size_t index) {
  const std::string name =
      "parameter " + std::to_string(index) + " of group " + std::to_string(group);
  bridge::check_floating_tensor("LARC", name, param);
  bridge::check_floating_tensor("LARC", "the gradient of " + name, param.grad());
  if (param.grad().sizes() != param.sizes() || param.grad().device() != param.device()) {
    raise<ConfigError>("LARC", "the gradient of ", name, " is ", bridge::describe(param.grad()),
                       ", the parameter ", bridge::describe(param));
  }
}

// Refuses options that the inner step would refuse only after gradients have changed.
void check_options(torch::optim::Optimizer& inner) {
  const auto* fused = dynamic_cast<const FusedOptimizer*>(&inner);
  for (std::size_t g = 0; g < inner.param_groups().size(); ++g) {
    const Options& options = inner.param_groups()[g].options();
    if (fused != nullptr) StepAccess::check_options(*fused, options);
    const std::string name = "the learning rate of group " + std::to_string(g);
    check_not_negative("LARC", name.c_str(), options.get_lr());
  }
}

// The factors on the gradients of a group: a vector of doubles, wherever the norms are, so
// that nothing waits for a device.
at::Tensor rates_of(const at::Tensor& param_norms, const at::Tensor& grad_norms, double lr,
                    double weight_decay, const LARCOptions& options) {
  at::Tensor rates = param_norms.mul(options.trust_coefficient)
                         .div(grad_norms.add(param_norms.mul(weight_decay)).add(options.eps));
  if (options.clip) rates = at::where(rates.lt(lr), rates.div(lr), 1.0);
  return at::where(param_norms.ne(0).logical_and(grad_norms.ne(0)), rates, 1.0);
}

}  // namespace

LARC::LARC(torch::optim::Optimizer& inner, LARCOptions options) : inner_(inner), options_(options) {
  check_not_negative("LARC", "trust_coefficient", options.trust_coefficient);
  check_not_negative("LARC", "eps", options.eps);
  const OptimizerKind* const kind = kind_of(inner);
  if (kind != nullptr && kind->evaluates_again) {
    raise<ConfigError>("LARC", kind->name,
                       " evaluates the loss itself, several times a step, by gradients "
                       "that cannot be changed before; expected another optimizer");
  }
}

std::vector<torch::optim::OptimizerParamGroup>& LARC::param_groups() {
  return inner_.param_groups();
}

void LARC::zero_grad(bool set_to_none) {
  inner_.zero_grad(set_to_none);
}

void LARC::step() {
  at::NoGradGuard no_grad;
  check_options(inner_);
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<std::int64_t> ends;  // of the groups, in those lists
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    const auto& of_group = param_groups()[g].params();
    for (std::size_t i = 0; i < of_group.size(); ++i) {
      if (!of_group[i].grad().defined()) continue;
      check_gradient(of_group[i], g, i);
      params.push_back(of_group[i]);
      grads.push_back(of_group[i].grad());
    }
    ends.push_back(static_cast<std::int64_t>(params.size()));
  }
  at::Tensor param_norms;
  at::Tensor grad_norms;
  bridge::norm_there("LARC", params, kernels::Norm::kTwo, &param_norms);
  bridge::norm_there("LARC", grads, kernels::Norm::kTwo, &grad_norms);
  const DecayTakenOver decay(param_groups());
  std::vector<at::Tensor> rates;
  std::vector<at::Tensor> decays;
  for (std::size_t g = 0; g < ends.size(); ++g) {
    const std::int64_t begin = g == 0 ? 0 : ends[g - 1];
    const double lr = param_groups()[g].options().get_lr();
    rates.push_back(rates_of(param_norms.slice(0, begin, ends[g]),
                             grad_norms.slice(0, begin, ends[g]), lr, decay.before(g), options_));
    decays.push_back(rates.back().mul(decay.before(g)));
  }
  if (!grads.empty()) {
    bridge::axpby_each("LARC", grads, params, grads, at::cat(rates), at::cat(decays));
  }
  inner_.step();
}

}  // namespace mezzo::optim
