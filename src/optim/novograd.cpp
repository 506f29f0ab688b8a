#include <torch/optim/adam.h>

#include <cmath>

#include "mezzo/optim.h"
#include "optim/archive.h"
#include "optim/checks.h"
#include "optim/options.h"
#include "optim/step_work.h"

#include <ATen/ops/scalar_tensor.h>

#include "core/torch.h"

namespace mezzo::optim {
namespace {

using torch::optim::AdamParamState;

// The running norm after this step's gradient: of squares, or of largest magnitudes.
double blend(const FusedNovoGradOptions& options, double before, double now) {
  const double beta2 = std::get<1>(options.betas());
  if (options.norm_type() == 0) return beta2 * before + (1 - beta2) * now;
  return std::sqrt(beta2 * before * before + (1 - beta2) * now * now);
}

kernels::NovogradScalars<double> scalars_of(const FusedNovoGradOptions& options, std::int64_t step,
                                            double norm, double grad_scale) {
  const auto [beta1, beta2] = options.betas();
  const auto t = static_cast<double>(step);
  const bool corrects = options.bias_correction();
  const double bias2 = corrects ? std::sqrt(1 - std::pow(beta2, t)) : 1;
  kernels::NovogradScalars<double> h{};
  h.beta1 = beta1;
  h.beta3 = options.grad_averaging() ? 1 - beta1 : 1;
  h.inv_bias1 = corrects ? 1 / (1 - std::pow(beta1, t)) : 1;
  h.inv_denominator = 1 / (norm / bias2 + options.eps());
  h.lr = options.lr();
  h.weight_decay = options.weight_decay();
  h.grad_scale = grad_scale;
  h.decay_inside_moment = options.reg_inside_moment();
  return h;
}

// The norm is kept as a scalar tensor in the place of Adam's second moment.
double norm_before(const AdamParamState& state, const FusedNovoGradOptions& options, double now) {
  if (state.exp_avg_sq().defined()) return state.exp_avg_sq().item<double>();
  return options.init_zero() ? 0 : now;
}

void keep_norm(AdamParamState& state, double norm) {
  const at::Tensor& kept = state.exp_avg_sq();
  if (!kept.defined() || kept.scalar_type() != at::kDouble || !kept.is_cpu()) {
    state.exp_avg_sq(at::scalar_tensor(norm, at::kDouble));
  } else {
    *kept.mutable_data_ptr<double>() = norm;
  }
}

}  // namespace

FusedNovoGradOptions::FusedNovoGradOptions(double lr) : lr_(lr) {}

template struct FusedOptions<FusedNovoGradOptions>;

FusedNovoGrad::FusedNovoGrad(const ParamGroups& groups, FusedNovoGradOptions defaults)
    : FusedOptimizer(groups, std::make_unique<FusedNovoGradOptions>(defaults)) {
  FusedNovoGrad::check(defaults);
  for (const auto& group : param_groups()) FusedNovoGrad::check(group.options());
}

FusedNovoGrad::FusedNovoGrad(std::vector<at::Tensor> params, FusedNovoGradOptions defaults)
    : FusedNovoGrad(ParamGroups{torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

void FusedNovoGrad::check(const Options& given) const {
  const auto& options = options_as<FusedNovoGradOptions>(name(), given);
  check_not_negative(name(), "lr", options.lr());
  check_not_negative(name(), "eps", options.eps());
  check_not_negative(name(), "weight_decay", options.weight_decay());
  check_beta(name(), "betas[0]", std::get<0>(options.betas()));
  check_beta(name(), "betas[1]", std::get<1>(options.betas()));
  if (options.norm_type() != 2 && options.norm_type() != 0) {
    raise<ConfigError>(name(), "norm_type is ", options.norm_type(),
                       "; expected 2, or 0 for the largest magnitude");
  }
}

void FusedNovoGrad::update(StepWork& work) {
  const auto options_of = [&](const Stepped& stepped) -> const FusedNovoGradOptions& {
    return static_cast<const FusedNovoGradOptions&>(param_groups()[stepped.group].options());
  };
  auto& [squares, largest, norms] = work.norms;
  squares.clear();
  largest.clear();
  for (const Stepped& stepped : work.parameters) {
    const bool two = options_of(stepped).norm_type() == 2;
    std::vector<double>& needed = two ? squares : largest;
    if (needed.empty()) {
      work.gradient_norm(two ? kernels::Norm::kTwo : kernels::Norm::kMax, &needed);
    }
  }
  auto& table = work.table<kernels::NovogradScalars<double>>();
  norms.resize(work.rows.size());
  for (std::size_t i = 0; i < work.rows.size(); ++i) {
    const Stepped& stepped = work.parameters[i];
    const FusedNovoGradOptions& options = options_of(stepped);
    auto& state = work.state_of<AdamParamState>(*this, *stepped.param);
    work.rows[i].state[0] = work.state_memory(state.exp_avg(), stepped);
    work.rows[i].scalars = static_cast<std::uint32_t>(i);
    const double scale = static_cast<double>(*work.guard.inv_scale);
    const double now = std::abs(scale) * (options.norm_type() == 2 ? squares[i] : largest[i]);
    norms[i] = blend(options, norm_before(state, options, now), now);
    table.add(scalars_of(options, state.step() + 1, norms[i], work.group_factor[stepped.group]));
  }
  for (std::size_t i = 0; i < work.states.size(); ++i) {
    auto& state = static_cast<AdamParamState&>(*work.states[i]);
    ++state.step();
    keep_norm(state, norms[i]);
  }
  work.lists.novograd(work.rows, table.all(), work.guard);
  for (const Elsewhere& e : work.elsewhere) {
    auto& state = static_cast<AdamParamState&>(*work.states[e.row]);
    const kernels::NovogradElement<TensorElements> element = kernels::novograd_element(
        kernels::NovogradElement<TensorElements>{work.weight_of(e), {state.exp_avg()}},
        work.gradient_of(e), table.all()[e.row]);
    state.exp_avg(element.exp_avg.values);
    work.write_weight(e, element.param);
  }
}

void FusedNovoGrad::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AdamParamState, FusedNovoGradOptions>(archive, *this);
}

void FusedNovoGrad::load(torch::serialize::InputArchive& archive) {
  load_optimizer<AdamParamState, FusedNovoGradOptions>(
      name(), archive, *this,
      [this](const AdamParamState& state, const at::Tensor& param, const std::string& of) {
        check_state_tensor(name(), "exp_avg", state.exp_avg(), param, of);
        if (!state.exp_avg_sq().defined() || state.exp_avg_sq().numel() != 1) {
          raise(name(), "the saved 'exp_avg_sq' of ", of,
                " is not one number: it is that of another optimizer");
        }
      });
}

}  // namespace mezzo::optim
