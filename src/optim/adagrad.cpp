#include <torch/optim/adagrad.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/archive.h"
#include "optim/checks.h"
#include "optim/options.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdagradParamState;

kernels::AdagradScalars<double> scalars_of(const FusedAdagradOptions& options, std::int64_t step,
                                           double grad_scale) {
  kernels::AdagradScalars<double> h{};
  h.lr = options.lr() / (1 + static_cast<double>(step - 1) * options.lr_decay());
  h.eps = options.eps();
  h.keep = options.adagrad_w_mode() ? 1 - h.lr * options.weight_decay() : 1;
  h.l2 = options.adagrad_w_mode() ? 0 : options.weight_decay();
  h.grad_scale = grad_scale;
  return h;
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
  for (std::size_t i = 0; i < work.rows.size(); ++i) {
    const Stepped& stepped = work.parameters[i];
    const auto& options =
        static_cast<const FusedAdagradOptions&>(param_groups()[stepped.group].options());
    auto& state = work.state_of<AdagradParamState>(*this, *stepped.param);
    const bool fresh = !state.sum().defined();
    work.rows[i].state[0] = work.state_memory(state.sum(), stepped);
    if (fresh && options.initial_accumulator_value() != 0) {
      state.sum().fill_(options.initial_accumulator_value());
    }
    const std::int64_t step = state.step() + 1;
    work.rows[i].scalars = table.index_of(stepped.group, step, false, [&] {
      return scalars_of(options, step, work.group_factor[stepped.group]);
    });
  }
  for (auto* state : work.states) ++static_cast<AdagradParamState*>(state)->step();
  work.lists.adagrad(work.rows, table.all(), work.guard);
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
  torch::optim::serialize<AdagradParamState, FusedAdagradOptions>(archive, *this);
}

void FusedAdagrad::load(torch::serialize::InputArchive& archive) {
  load_optimizer<AdagradParamState, FusedAdagradOptions>(
      name(), archive, *this,
      [this](const AdagradParamState& state, const at::Tensor& param, const std::string& of) {
        check_state_tensor(name(), "sum", state.sum(), param, of);
      });
}

}  // namespace mezzo::optim
