#include <algorithm>

#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "core/torch.h"
#include "mezzo/optim.h"
#include "optim/checks.h"
#include "optim/weight_decay.h"

#include <ATen/core/grad_mode.h>

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

}  // namespace

LARC::LARC(torch::optim::Optimizer& inner, LARCOptions options) : inner_(inner), options_(options) {
  check_not_negative("LARC", "trust_coefficient", options.trust_coefficient);
  check_not_negative("LARC", "eps", options.eps);
}

std::vector<torch::optim::OptimizerParamGroup>& LARC::param_groups() {
  return inner_.param_groups();
}

void LARC::zero_grad(bool set_to_none) {
  inner_.zero_grad(set_to_none);
}

void LARC::step() {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<std::size_t> groups;
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    for (const at::Tensor& param : param_groups()[g].params()) {
      if (!param.grad().defined()) continue;
      params.push_back(param);
      grads.push_back(param.grad());
      groups.push_back(g);
    }
  }
  std::vector<double> param_norms;
  std::vector<double> grad_norms;
  bridge::norm("LARC", params, kernels::Norm::kTwo, &param_norms);
  bridge::norm("LARC", grads, kernels::Norm::kTwo, &grad_norms);
  const DecayTakenOver decay(param_groups());
  for (std::size_t i = 0; i < params.size(); ++i) {
    const double weight_decay = decay.before(groups[i]);
    double rate = 1;
    if (param_norms[i] != 0 && grad_norms[i] != 0) {
      rate = options_.trust_coefficient * param_norms[i] /
             (grad_norms[i] + param_norms[i] * weight_decay + options_.eps);
      const double lr = param_groups()[groups[i]].options().get_lr();
      if (options_.clip) rate = std::min(rate / lr, 1.0);
    }
    bridge::axpby("LARC", grads[i], params[i], grads[i], rate, rate * weight_decay);
  }
  inner_.step();
}

}  // namespace mezzo::optim
