#include <torch/optim/adam.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/moments.h"
#include "optim/optimizer_of.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdamParamState;

kernels::LambRecipe lamb_recipe(const Options& given) {
  const auto& options = static_cast<const FusedLAMBOptions&>(given);
  auto recipe = recipe_with_moments<kernels::LambRecipe>(options);
  recipe.decoupled = options.adam_w_mode();
  recipe.grad_averaging = options.grad_averaging();
  recipe.always_adapts = options.use_nvlamb();
  return recipe;
}

}  // namespace

FusedLAMBOptions::FusedLAMBOptions(double lr) : lr_(lr) {}

void FusedLAMBOptions::check() const {
  check_moments(*this);
}

template struct FusedOptions<FusedLAMBOptions>;
template class FusedOptimizerOf<FusedLAMBOptions, AdamParamState>;

void FusedLAMB::update(StepWork& work) {
  const auto& recipes = work.recipes_of(param_groups(), lamb_recipe);
  const auto recipe_at = [&](std::size_t row) -> const kernels::LambRecipe& {
    return recipes[work.parameters[row].group];
  };
  auto& table = work.table<kernels::LambScalars<double>>();
  const auto prepare = [&](std::size_t i, AdamParamState* state) {
    const Stepped& stepped = work.parameters[i];
    work.rows[i].state[0] = work.state_memory(state->exp_avg(), stepped);
    work.rows[i].state[1] = work.state_memory(state->exp_avg_sq(), stepped);
    work.rows[i].scalars = static_cast<std::uint32_t>(stepped.group);
    table.add(
        kernels::scalars_at(recipe_at(i), state->step() + 1, work.group_factor[stepped.group]));
  };
  work.for_each_state<AdamParamState>(
      *this, {&AdamParamState::exp_avg, &AdamParamState::exp_avg_sq}, prepare);
  work.count_step<AdamParamState>();
  work.lists.lamb(work.rows, table.all(), work.guard,
                  [&](std::size_t row, double param_norm, double update_norm) {
                    return kernels::lamb_rate(recipe_at(row), param_norm, update_norm);
                  });
  work.device.step(&kernels::cuda::Interface::lamb, recipes, work.rows,
                   [&](std::size_t i) { return work.counted<AdamParamState>(i); });
  for (const Elsewhere& e : work.elsewhere) {
    auto& state = static_cast<AdamParamState&>(*work.states[e.row]);
    const kernels::LambScalars<double>& h = table.all()[e.row];
    const kernels::LambElement<TensorElements> element = kernels::lamb_moments(
        kernels::LambElement<TensorElements>{
            work.weight_of(e), {state.exp_avg()}, {state.exp_avg_sq()}},
        work.gradient_of(e), h);
    const TensorElements update = kernels::lamb_update(element, h);
    const double rate =
        kernels::lamb_rate(recipe_at(e.row), element.param.values.norm().item<double>(),
                           update.values.norm().item<double>());
    state.exp_avg(element.exp_avg.values);
    state.exp_avg_sq(element.exp_avg_sq.values);
    work.write_weight(e, element.param - update * rate);
  }
}

void FusedLAMB::check_state(const AdamParamState& state, const at::Tensor& param,
                            const std::string& of) const {
  check_moments(FusedLAMBOptions::kOptimizer, state, param, of);
}

}  // namespace mezzo::optim
