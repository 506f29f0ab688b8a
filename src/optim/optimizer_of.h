// FusedOptimizerOf, for the sources that define an optimizer: each instantiates it, and
// FusedOptions, for its own options.
#pragma once

#include <torch/optim/serialize.h>

#include "optim/archive.h"
#include "optim/checks.h"
#include "optim/options.h"
#include "optim/step_access.h"

namespace mezzo::optim {

template <typename OwnOptions, typename State>
FusedOptimizerOf<OwnOptions, State>::FusedOptimizerOf(const ParamGroups& groups,
                                                      OwnOptions defaults)
    : FusedOptimizer(groups, std::make_unique<OwnOptions>(defaults)) {
  defaults.check();
  for (const auto& group : param_groups()) FusedOptimizerOf::check(group.options());
}

template <typename OwnOptions, typename State>
FusedOptimizerOf<OwnOptions, State>::FusedOptimizerOf(std::vector<at::Tensor> params,
                                                      OwnOptions defaults)
    : FusedOptimizerOf(ParamGroups{torch::optim::OptimizerParamGroup(std::move(params))},
                       std::move(defaults)) {}

template <typename OwnOptions, typename State>
void FusedOptimizerOf<OwnOptions, State>::check(const Options& options) const {
  options_as<OwnOptions>(OwnOptions::kOptimizer, options).check();
}

template <typename OwnOptions, typename State>
double FusedOptimizerOf<OwnOptions, State>::max_grad_norm(const Options& options) const {
  if constexpr (requires(const OwnOptions& own) { own.max_grad_norm(); }) {
    return static_cast<const OwnOptions&>(options).max_grad_norm();
  } else {
    return 0;
  }
}

template <typename OwnOptions, typename State>
void FusedOptimizerOf<OwnOptions, State>::save(torch::serialize::OutputArchive& archive) const {
  const SettledStates settled(*this);
  torch::optim::serialize<State, OwnOptions>(archive, *this);
}

template <typename OwnOptions, typename State>
void FusedOptimizerOf<OwnOptions, State>::load(torch::serialize::InputArchive& archive) {
  load_optimizer<State, OwnOptions>(
      OwnOptions::kOptimizer, archive, *this,
      [this](const State& state, const at::Tensor& param, const std::string& of) {
        check_state(state, param, of);
      });
  StepAccess::forget_counts(*this);
}

}  // namespace mezzo::optim
