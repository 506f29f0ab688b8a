#include <ATen/ops/_fused_adagrad.h>
#include <torch/optim/adagrad.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/checks.h"
#include "optim/library_steps.h"
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

/// Steps what LibTorch's `_fused_adagrad_` takes, and returns what it does not.
std::vector<Elsewhere> step_by_libtorch(const StepWork& work,
                                        const std::vector<kernels::AdagradRecipe>& recipes) {
  const auto recipe_of = [&](std::size_t row) -> const kernels::AdagradRecipe& {
    return recipes[work.parameters[row].group];
  };
  const auto state_of = [&](std::size_t row) -> AdagradParamState& {
    return static_cast<AdagradParamState&>(*work.states[row]);
  };
  return step_by_library(
      work, [&](std::size_t row) { return !recipe_of(row).decoupled; },
      [&](std::size_t row) { return std::vector<at::Tensor>{state_of(row).sum()}; },
      [&](const LibraryList& list) {
        const kernels::AdagradRecipe& r = recipe_of(list.row);
        at::_fused_adagrad_(list.params, list.grads, list.states[0],
                            list.steps(state_of(list.row).step()), r.lr, r.lr_decay, r.weight_decay,
                            r.eps, /*maximize=*/false);
      });
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
  for (const Elsewhere& e : step_by_libtorch(work, recipes)) {
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
