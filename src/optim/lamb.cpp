#include <torch/optim/adam.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/archive.h"
#include "optim/checks.h"
#include "optim/options.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdamParamState;

kernels::LambScalars<double> scalars_of(const FusedLAMBOptions& options, std::int64_t step,
                                        double grad_scale) {
  const auto [beta1, beta2] = options.betas();
  const auto t = static_cast<double>(step);
  kernels::LambScalars<double> h{};
  h.beta1 = beta1;
  h.beta3 = options.grad_averaging() ? 1 - beta1 : 1;
  h.beta2 = beta2;
  h.one_minus_beta2 = 1 - beta2;
  h.inv_bias1 = options.bias_correction() ? 1 / (1 - std::pow(beta1, t)) : 1;
  h.inv_sqrt_bias2 = options.bias_correction() ? 1 / std::sqrt(1 - std::pow(beta2, t)) : 1;
  h.eps = options.eps();
  h.decoupled = options.adam_w_mode() ? options.weight_decay() : 0;
  h.l2 = options.adam_w_mode() ? 0 : options.weight_decay();
  h.grad_scale = grad_scale;
  return h;
}

double rate_of(const FusedLAMBOptions& options, double param_norm, double update_norm) {
  const bool adapts = options.weight_decay() != 0 || options.use_nvlamb();
  if (!adapts || param_norm == 0 || update_norm == 0) return options.lr();
  return options.lr() * param_norm / update_norm;
}

}  // namespace

FusedLAMBOptions::FusedLAMBOptions(double lr) : lr_(lr) {}

template struct FusedOptions<FusedLAMBOptions>;

FusedLAMB::FusedLAMB(const ParamGroups& groups, FusedLAMBOptions defaults)
    : FusedOptimizer(groups, std::make_unique<FusedLAMBOptions>(defaults)) {
  FusedLAMB::check(defaults);
  for (const auto& group : param_groups()) FusedLAMB::check(group.options());
}

FusedLAMB::FusedLAMB(std::vector<at::Tensor> params, FusedLAMBOptions defaults)
    : FusedLAMB(ParamGroups{torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

void FusedLAMB::check(const Options& given) const {
  const auto& options = options_as<FusedLAMBOptions>(name(), given);
  check_not_negative(name(), "lr", options.lr());
  check_not_negative(name(), "eps", options.eps());
  check_not_negative(name(), "weight_decay", options.weight_decay());
  check_not_negative(name(), "max_grad_norm", options.max_grad_norm());
  check_beta(name(), "betas[0]", std::get<0>(options.betas()));
  check_beta(name(), "betas[1]", std::get<1>(options.betas()));
}

double FusedLAMB::max_grad_norm(const Options& options) const {
  return static_cast<const FusedLAMBOptions&>(options).max_grad_norm();
}

void FusedLAMB::update(StepWork& work) {
  const auto options_of = [&](std::size_t row) -> const FusedLAMBOptions& {
    return static_cast<const FusedLAMBOptions&>(
        param_groups()[work.parameters[row].group].options());
  };
  auto& table = work.table<kernels::LambScalars<double>>();
  for (std::size_t i = 0; i < work.rows.size(); ++i) {
    const Stepped& stepped = work.parameters[i];
    auto& state = work.state_of<AdamParamState>(*this, *stepped.param);
    work.rows[i].state[0] = work.state_memory(state.exp_avg(), stepped);
    work.rows[i].state[1] = work.state_memory(state.exp_avg_sq(), stepped);
    table.add(scalars_of(options_of(i), state.step() + 1, work.group_factor[stepped.group]));
  }
  for (auto* state : work.states) ++static_cast<AdamParamState*>(state)->step();
  work.lists.lamb(work.rows, table.all(), work.guard,
                  [&](std::size_t row, double param_norm, double update_norm) {
                    return rate_of(options_of(row), param_norm, update_norm);
                  });
  for (const Elsewhere& e : work.elsewhere) {
    auto& state = static_cast<AdamParamState&>(*work.states[e.row]);
    const kernels::LambScalars<double>& h = table.all()[e.row];
    const kernels::LambElement<TensorElements> element = kernels::lamb_moments(
        kernels::LambElement<TensorElements>{
            work.weight_of(e), {state.exp_avg()}, {state.exp_avg_sq()}},
        work.gradient_of(e), h);
    const TensorElements update = kernels::lamb_update(element, h);
    const double rate = rate_of(options_of(e.row), element.param.values.norm().item<double>(),
                                update.values.norm().item<double>());
    state.exp_avg(element.exp_avg.values);
    state.exp_avg_sq(element.exp_avg_sq.values);
    work.write_weight(e, element.param - update * rate);
  }
}

void FusedLAMB::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AdamParamState, FusedLAMBOptions>(archive, *this);
}

void FusedLAMB::load(torch::serialize::InputArchive& archive) {
  load_optimizer<AdamParamState, FusedLAMBOptions>(
      name(), archive, *this,
      [this](const AdamParamState& state, const at::Tensor& param, const std::string& of) {
        check_state_tensor(name(), "exp_avg", state.exp_avg(), param, of);
        check_state_tensor(name(), "exp_avg_sq", state.exp_avg_sq(), param, of);
      });
}

}  // namespace mezzo::optim
