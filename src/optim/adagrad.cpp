#include <torch/optim/adagrad.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/archive.h"
#include "optim/checks.h"
#include "optim/options.h"
#include "optim/step_access.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdagradParamState;

kernels::AdagradRecipe recipe_of(const Options& given) {
  const auto& options = static_cast<const FusedAdagradOptions&>(given);
  kernels::AdagradRecipe recipe;
  recipe.lr = options.lr();
  recipe.lr_decay = options.lr_decay();
  recipe.eps = options.eps();
  recipe.weight_decay = options.weight_decay();
  recipe.decoupled = options.adagrad_w_mode();
  return recipe;
}

}  // namespace

FusedAdagradOptions::FusedAdagradOptions(double lr) : lr_(lr) {}

template struct FusedOptions<FusedAdagradOptions>;

FusedAdagrad::FusedAdagrad(const ParamGroups& groups, FusedAdagradOptions defaults)
    : FusedOptimizer(groups, std::make_unique<FusedAdagradOptions>(defaults)) {
  FusedAdagrad::check(defaults);
  for (const auto& group : param_groups()) FusedAdagrad::check(group.options());
}

FusedAdagrad::FusedAdagrad(std::vector<at::Tensor> params, FusedAdagradOptions defaults)
    : FusedAdagrad(ParamGroups{torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

void FusedAdagrad::check(const Options& given) const {
  const auto& options = options_as<FusedAdagradOptions>(name(), given);
  check_not_negative(name(), "lr", options.lr());
  check_not_negative(name(), "lr_decay", options.lr_decay());
  check_not_negative(name(), "weight_decay", options.weight_decay());
  check_not_negative(name(), "initial_accumulator_value", options.initial_accumulator_value());
  check_not_negative(name(), "eps", options.eps());
}

void FusedAdagrad::update(StepWork& work) {
  auto& table = work.table<kernels::AdagradScalars<double>>();
  const auto& recipes = work.recipes_of(param_groups(), recipe_of);
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

void FusedAdagrad::save(torch::serialize::OutputArchive& archive) const {
  StepAccess::settle_counts(*this);
  torch::optim::serialize<AdagradParamState, FusedAdagradOptions>(archive, *this);
}

void FusedAdagrad::load(torch::serialize::InputArchive& archive) {
  StepAccess::forget_counts(*this);
  load_optimizer<AdagradParamState, FusedAdagradOptions>(
      name(), archive, *this,
      [this](const AdagradParamState& state, const at::Tensor& param, const std::string& of) {
        check_state_tensor(name(), "sum", state.sum(), param, of);
      });
}

}  // namespace mezzo::optim
