#include <ATen/ops/_fused_sgd.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "bridge/tensors.h"
#include "mezzo/optim.h"
#include "optim/checks.h"
#include "optim/library_steps.h"
#include "optim/optimizer_of.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::SGDParamState;

kernels::SgdRecipe sgd_recipe(const Options& given) {
  const auto& options = static_cast<const FusedSGDOptions&>(given);
  kernels::SgdRecipe recipe;
  recipe.lr = options.lr();
  recipe.momentum = options.momentum();
  recipe.dampening = options.dampening();
  recipe.weight_decay = options.weight_decay();
  recipe.max_grad_norm = options.max_grad_norm();
  recipe.nesterov = options.nesterov();
  recipe.decay_after_momentum = options.wd_after_momentum();
  return recipe;
}

/// Steps what LibTorch's `_fused_sgd_` takes, and returns what it does not.
std::vector<Elsewhere> step_by_libtorch(const StepWork& work,
                                        const std::vector<kernels::SgdRecipe>& recipes,
                                        std::span<const kernels::SgdScalars<double>> table) {
  const auto recipe_of = [&](std::size_t row) -> const kernels::SgdRecipe& {
    return recipes[work.parameters[row].group];
  };
  return step_by_library(
      work, [&](std::size_t row) { return !recipe_of(row).decay_after_momentum; },
      [&](std::size_t row) {
        auto* state = static_cast<SGDParamState*>(work.states[row]);
        return state == nullptr ? std::vector<at::Tensor>{}
                                : std::vector<at::Tensor>{state->momentum_buffer()};
      },
      [&](const LibraryList& list) {
        const kernels::SgdRecipe& r = recipe_of(list.row);
        at::_fused_sgd_(list.params, list.grads,
                        list.states.empty() ? at::TensorList() : at::TensorList(list.states[0]),
                        r.weight_decay, r.momentum, r.lr, r.dampening, r.nesterov,
                        /*maximize=*/false,
                        /*is_first_step=*/table[work.rows[list.row].scalars].first);
      });
}

}  // namespace

FusedSGDOptions::FusedSGDOptions(double lr) : lr_(lr) {}

void FusedSGDOptions::check() const {
  check_not_negative(kOptimizer, "lr", lr());
  check_not_negative(kOptimizer, "momentum", momentum());
  check_not_negative(kOptimizer, "weight_decay", weight_decay());
  check_not_negative(kOptimizer, "max_grad_norm", max_grad_norm());
  if (!std::isfinite(dampening())) {
    raise<ConfigError>(kOptimizer, "dampening is ", dampening(), "; expected a finite number");
  }
  if (nesterov() && (momentum() <= 0 || dampening() != 0)) {
    raise<ConfigError>(kOptimizer, "nesterov with momentum ", momentum(), " and dampening ",
                       dampening(), "; expected momentum above 0 and dampening 0");
  }
}

template struct FusedOptions<FusedSGDOptions>;
template class FusedOptimizerOf<FusedSGDOptions, SGDParamState>;

void FusedSGD::update(StepWork& work) {
  auto& table = work.table<kernels::SgdScalars<double>>();
  const auto& recipes = work.recipes_of(param_groups(), sgd_recipe);
  std::vector<std::size_t> fresh;  // on devices, with a buffer that was just made
  const auto keeps = [&](std::size_t i) { return recipes[work.parameters[i].group].momentum != 0; };
  const auto prepare = [&](std::size_t i, SGDParamState* state) {
    const Stepped& stepped = work.parameters[i];
    bool first = false;
    if (state != nullptr) {
      first = !state->momentum_buffer().defined();
      work.rows[i].state[0] = work.state_memory(state->momentum_buffer(), stepped);
    }
    work.rows[i].scalars = static_cast<std::uint32_t>(stepped.group);
    if (work.device.has(i)) {
      if (first) fresh.push_back(i);
      return;
    }
    work.rows[i].scalars = table.index_of(stepped.group, 0, first, [&] {
      return kernels::scalars_at(recipes[stepped.group], first ? 1 : 2,
                                 work.group_factor[stepped.group]);
    });
  };
  work.for_each_state<SGDParamState>(*this, {&SGDParamState::momentum_buffer}, keeps, prepare);
  work.lists.sgd(work.rows, table.all(), work.guard);
  work.device.step(&kernels::cuda::Interface::sgd, recipes, work.rows, [&](std::size_t i) {
    const bool is_fresh = std::binary_search(fresh.begin(), fresh.end(), i);
    return HostState{is_fresh ? 0 : DeviceCounters::kNoOpinion, is_fresh};
  });
  for (const Elsewhere& e : step_by_libtorch(work, recipes, table.all())) {
    const kernels::SgdScalars<double>& h = table.all()[work.rows[e.row].scalars];
    auto* state = static_cast<SGDParamState*>(work.states[e.row]);
    kernels::SgdElement<TensorElements> element{work.weight_of(e), {}};
    if (state != nullptr) element.buffer = {state->momentum_buffer()};
    element = kernels::sgd_element(element, work.gradient_of(e), h);
    if (state != nullptr) state->momentum_buffer(element.buffer.values);
    work.write_weight(e, element.param);
  }
}

void FusedSGD::check_state(const SGDParamState& state, const at::Tensor& param,
                           const std::string& of) const {
  check_state_tensor(FusedSGDOptions::kOptimizer, "momentum_buffer", state.momentum_buffer(), param,
                     of);
}

}  // namespace mezzo::optim
