#include <torch/optim/adagrad.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/checks.h"
#include "optim/optimizer_of.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdagradParamState;

kernels::AdagradRecipe adagrad_recipe(const Options& given) {
  const auto& options = static_cast<const FusedAdagradOptions&>(given);
  kernels::AdagradRecipe recipe;
  recipe.lr = options.lr();
  recipe.lr_decay = options.lr_decay();
  recipe.eps = options.eps();
  recipe.weight_decay = options.weight_decay();
  recipe.max_grad_norm = options.max_grad_norm();
  recipe.decoupled = options.adagrad_w_mode();
  return recipe;
}

}  // namespace

FusedAdagradOptions::FusedAdagradOptions(double lr) : lr_(lr) {}

void FusedAdagradOptions::check() const {
  check_not_negative(kOptimizer, "lr", lr());
  check_not_negative(kOptimizer, "lr_decay", lr_decay());
  check_not_negative(kOptimizer, "weight_decay", weight_decay());
  check_not_negative(kOptimizer, "initial_accumulator_value", initial_accumulator_value());
  check_not_negative(kOptimizer, "eps", eps());
  check_not_negative(kOptimizer, "max_grad_norm", max_grad_norm());
}

template struct FusedOptions<FusedAdagradOptions>;
template class FusedOptimizerOf<FusedAdagradOptions, AdagradParamState>;

void FusedAdagrad::update(StepWork& work) {
  auto& table = work.table<kernels::AdagradScalars<double>>();
  const auto& recipes = work.recipes_of(param_groups(), adagrad_recipe);
  const auto prepare = [&](std::size_t i, AdagradParamState* state) {
    const Stepped& stepped = work.parameters[i];
    const auto& options =
        static_cast<const FusedAdagradOptions&>(param_groups()[stepped.group].options());
    const bool fresh = !state->sum().defined();
    work.rows[i].state[0] = work.state_memory(state->sum(), stepped);
    if (fresh && options.initial_accumulator_value() != 0) {
      state->sum().fill_(options.initial_accumulator_value());
    }
    work.rows[i].scalars = static_cast<std::uint32_t>(stepped.group);
    if (work.device.has(i)) return;
    const std::int64_t step = state->step() + 1;
    work.rows[i].scalars = table.index_of(stepped.group, step, false, [&] {
      return kernels::scalars_at(recipes[stepped.group], step, work.group_factor[stepped.group]);
    });
  };
  work.for_each_state<AdagradParamState>(*this, {&AdagradParamState::sum}, prepare);
  work.count_step<AdagradParamState>();
  work.lists.adagrad(work.rows, table.all(), work.guard);
  work.device.step(&kernels::cuda::Interface::adagrad, recipes, work.rows,
                   [&](std::size_t i) { return work.counted<AdagradParamState>(i); });
  for (const Elsewhere& e : work.elsewhere) {
    auto& state = static_cast<AdagradParamState&>(*work.states[e.row]);
    const kernels::AdagradElement<TensorElements> element = kernels::adagrad_element(
        kernels::AdagradElement<TensorElements>{work.weight_of(e), {state.sum()}},
        work.gradient_of(e), table.all()[work.rows[e.row].scalars]);
    state.sum(element.sum.values);
    work.write_weight(e, element.param);
  }
}

void FusedAdagrad::check_state(const AdagradParamState& state, const at::Tensor& param,
                               const std::string& of) const {
  check_state_tensor(FusedAdagradOptions::kOptimizer, "sum", state.sum(), param, of);
}

}  // namespace mezzo::optim
