#include <torch/optim/adam.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/moments.h"
#include "optim/optimizer_of.h"
#include "optim/step_work.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "core/torch.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdamParamState;

kernels::NovogradRecipe novograd_recipe(const Options& given) {
  const auto& options = static_cast<const FusedNovoGradOptions&>(given);
  auto recipe = recipe_with_moments<kernels::NovogradRecipe>(options);
  recipe.grad_averaging = options.grad_averaging();
  recipe.decay_inside_moment = options.reg_inside_moment();
  recipe.init_zero = options.init_zero();
  recipe.largest = options.norm_type() == 0;
  return recipe;
}

// The norms of the gradients that the host knows, as their groups ask for them.
void find_norms(StepWork& work, const std::vector<kernels::NovogradRecipe>& recipes) {
  std::vector<double>& squares = work.norms.squares;
  std::vector<double>& largest = work.norms.largest;
  squares.clear();
  largest.clear();
  for (std::size_t i = 0; i < work.rows.size(); ++i) {
    const bool two = !recipes[work.parameters[i].group].largest;
    std::vector<double>& needed = two ? squares : largest;
    if (needed.empty() && !work.device.has(i)) {
      work.gradient_norm(two ? kernels::Norm::kTwo : kernels::Norm::kMax, &needed);
    }
  }
}

void keep_norm(AdamParamState& state, double norm) {
  const at::Tensor& kept = state.exp_avg_sq();
  if (!kept.defined() || kept.scalar_type() != at::kDouble || !kept.is_cpu()) {
    state.exp_avg_sq(at::scalar_tensor(norm, at::TensorOptions(at::kCPU).dtype(at::kDouble)));
  } else {
    *kept.mutable_data_ptr<double>() = norm;
  }
}

}  // namespace

FusedNovoGradOptions::FusedNovoGradOptions(double lr) : lr_(lr) {}

void FusedNovoGradOptions::check() const {
  check_moments(*this);
  if (norm_type() != 2 && norm_type() != 0) {
    raise<ConfigError>(kOptimizer, "norm_type is ", norm_type(),
                       "; expected 2, or 0 for the largest magnitude");
  }
}

template struct FusedOptions<FusedNovoGradOptions>;
template class FusedOptimizerOf<FusedNovoGradOptions, AdamParamState>;

void FusedNovoGrad::update(StepWork& work) {
  const auto& recipes = work.recipes_of(param_groups(), novograd_recipe);
  find_norms(work, recipes);
  std::vector<double>& norms = work.norms.kept;
  auto& table = work.table<kernels::NovogradScalars<double>>();
  norms.resize(work.rows.size());
  const auto prepare = [&](std::size_t i, AdamParamState* state) {
    const Stepped& stepped = work.parameters[i];
    const kernels::NovogradRecipe& recipe = recipes[stepped.group];
    work.rows[i].state[0] = work.state_memory(state->exp_avg(), stepped);
    work.rows[i].scalars = static_cast<std::uint32_t>(i);
    if (work.device.has(i)) {
      work.rows[i].scalars = static_cast<std::uint32_t>(stepped.group);
      return table.add({});
    }
    const double scale = static_cast<double>(*work.guard.inv_scale);
    const double factor = work.group_factor[stepped.group] * std::abs(scale);
    const double now = factor * (recipe.largest ? work.norms.largest[i] : work.norms.squares[i]);
    // On a device a first step may have been skipped after its state was made.
    const bool first = !state->exp_avg_sq().defined() || state->step() == 0;
    const double before = first ? 0 : state->exp_avg_sq().item<double>();
    norms[i] = kernels::novograd_norm(recipe, first ? 1 : 2, before, now);
    table.add(
        kernels::scalars_at(recipe, state->step() + 1, norms[i], work.group_factor[stepped.group]));
  };
  work.for_each_state<AdamParamState>(
      *this, {&AdamParamState::exp_avg, &AdamParamState::exp_avg_sq}, prepare);
  for (std::size_t i = 0; i < work.states.size(); ++i) {
    if (work.device.has(i)) continue;
    auto& state = static_cast<AdamParamState&>(*work.states[i]);
    ++state.step();
    keep_norm(state, norms[i]);
  }
  work.lists.novograd(work.rows, table.all(), work.guard);
  work.device.step(&kernels::cuda::Interface::novograd, recipes, work.rows, [&](std::size_t i) {
    auto& state = static_cast<AdamParamState&>(*work.states[i]);
    const at::Tensor& param = *work.parameters[i].param;
    // The kernel keeps the running norm on its device.
    state.exp_avg_sq(state.exp_avg_sq().defined()
                         ? state.exp_avg_sq().to(param.device(), at::kDouble)
                         : at::zeros({}, at::TensorOptions(param.device()).dtype(at::kDouble)));
    return HostState{state.step(), work.fresh[i], state.exp_avg_sq().mutable_data_ptr<double>()};
  });
  for (const Elsewhere& e : work.elsewhere) {
    auto& state = static_cast<AdamParamState&>(*work.states[e.row]);
    const kernels::NovogradElement<TensorElements> element = kernels::novograd_element(
        kernels::NovogradElement<TensorElements>{work.weight_of(e), {state.exp_avg()}},
        work.gradient_of(e), table.all()[e.row]);
    state.exp_avg(element.exp_avg.values);
    work.write_weight(e, element.param);
  }
}

void FusedNovoGrad::check_state(const AdamParamState& state, const at::Tensor& param,
                                const std::string& of) const {
  check_state_tensor(FusedNovoGradOptions::kOptimizer, "exp_avg", state.exp_avg(), param, of);
  if (!state.exp_avg_sq().defined() || state.exp_avg_sq().numel() != 1) {
    raise(FusedNovoGradOptions::kOptimizer, "the saved 'exp_avg_sq' of ", of,
          " is not one number: it is that of another optimizer");
  }
}

}  // namespace mezzo::optim
