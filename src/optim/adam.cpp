#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/optim/adam.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/library_steps.h"
#include "optim/moments.h"
#include "optim/optimizer_of.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdamParamState;

kernels::AdamRecipe adam_recipe(const Options& given) {
  const auto& options = static_cast<const FusedAdamOptions&>(given);
  auto recipe = recipe_with_moments<kernels::AdamRecipe>(options);
  recipe.decoupled = options.adam_w_mode();
  recipe.amsgrad = options.amsgrad();
  recipe.eps_inside_sqrt = options.eps_inside_sqrt();
  return recipe;
}

/// Steps what LibTorch's `_fused_adam_` and `_fused_adamw_` take, and returns what they do not.
std::vector<Elsewhere> step_by_libtorch(const StepWork& work,
                                        const std::vector<kernels::AdamRecipe>& recipes) {
  const auto recipe_of = [&](std::size_t row) -> const kernels::AdamRecipe& {
    return recipes[work.parameters[row].group];
  };
  const auto state_of = [&](std::size_t row) -> AdamParamState& {
    return static_cast<AdamParamState&>(*work.states[row]);
  };
  return step_by_library(
      work,
      [&](std::size_t row) {
        return recipe_of(row).bias_correction && !recipe_of(row).eps_inside_sqrt;
      },
      [&](std::size_t row) {
        AdamParamState& state = state_of(row);
        std::vector<at::Tensor> tensors{state.exp_avg(), state.exp_avg_sq()};
        if (recipe_of(row).amsgrad) tensors.push_back(state.max_exp_avg_sq());
        return tensors;
      },
      [&](const LibraryList& list) {
        const kernels::AdamRecipe& r = recipe_of(list.row);
        const at::TensorList largest =
            r.amsgrad ? at::TensorList(list.states[2]) : at::TensorList();
        const auto step = [&](const auto& fused) {
          fused(list.params, list.grads, list.states[0], list.states[1], largest,
                list.steps(state_of(list.row).step()), r.lr, r.beta1, r.beta2, r.weight_decay,
                r.eps, r.amsgrad, /*maximize=*/false);
        };
        if (r.decoupled) {
          step([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
        } else {
          step([](const auto&... arguments) { at::_fused_adam_(arguments...); });
        }
      });
}

}  // namespace

FusedAdamOptions::FusedAdamOptions(double lr) : lr_(lr) {}

void FusedAdamOptions::check() const {
  check_moments(*this);
}

template struct FusedOptions<FusedAdamOptions>;
template class FusedOptimizerOf<FusedAdamOptions, AdamParamState>;

void FusedAdam::update(StepWork& work) {
  auto& table = work.table<kernels::AdamScalars<double>>();
  const auto& recipes = work.recipes_of(param_groups(), adam_recipe);
  const auto prepare = [&](std::size_t i, AdamParamState* state) {
    const Stepped& stepped = work.parameters[i];
    const kernels::AdamRecipe& recipe = recipes[stepped.group];
    kernels::StepRow& row = work.rows[i];
    row.state[0] = work.state_memory(state->exp_avg(), stepped);
    row.state[1] = work.state_memory(state->exp_avg_sq(), stepped);
    if (recipe.amsgrad) row.state[2] = work.state_memory(state->max_exp_avg_sq(), stepped);
    row.scalars = static_cast<std::uint32_t>(stepped.group);
    if (work.device.has(i)) return;
    const std::int64_t step = state->step() + 1;
    row.scalars = table.index_of(stepped.group, step, false, [&] {
      return kernels::scalars_at(recipe, step, work.group_factor[stepped.group]);
    });
  };
  work.for_each_state<AdamParamState>(
      *this, {&AdamParamState::exp_avg, &AdamParamState::exp_avg_sq}, prepare);
  work.count_step<AdamParamState>();
  work.lists.adam(work.rows, table.all(), work.guard);
  work.device.step(&kernels::cuda::Interface::adam, recipes, work.rows,
                   [&](std::size_t i) { return work.counted<AdamParamState>(i); });
  for (const Elsewhere& e : step_by_libtorch(work, recipes)) {
    auto& state = static_cast<AdamParamState&>(*work.states[e.row]);
    kernels::AdamScalars<double> h = table.all()[work.rows[e.row].scalars];
    kernels::AdamElement<TensorElements> element{
        work.weight_of(e), {state.exp_avg()}, {state.exp_avg_sq()}, {state.max_exp_avg_sq()}};
    element = kernels::adam_element(element, work.gradient_of(e), h);
    state.exp_avg(element.exp_avg.values);
    state.exp_avg_sq(element.exp_avg_sq.values);
    if (h.amsgrad) state.max_exp_avg_sq(element.max_exp_avg_sq.values);
    work.write_weight(e, element.param);
  }
}

void FusedAdam::check_state(const AdamParamState& state, const at::Tensor& param,
                            const std::string& of) const {
  check_moments(FusedAdamOptions::kOptimizer, state, param, of);
}

}  // namespace mezzo::optim
