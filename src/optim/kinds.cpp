#include "optim/kinds.h"

#include <ATen/ops/full_like.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <type_traits>

namespace mezzo::optim {
namespace {

void visit_one(at::Tensor& tensor, const TensorVisit& visit) {
  if (tensor.defined()) visit(tensor);
}

template <typename Sequence>
void visit_all(Sequence& tensors, const TensorVisit& visit) {
  for (at::Tensor& tensor : tensors) visit_one(tensor, visit);
}

template <typename State>
void visit_moments(State& state, const TensorVisit& visit) {
  visit_one(state.exp_avg(), visit);
  visit_one(state.exp_avg_sq(), visit);
  visit_one(state.max_exp_avg_sq(), visit);
}

void visit_momentum(torch::optim::SGDParamState& state, const TensorVisit& visit) {
  visit_one(state.momentum_buffer(), visit);
}

void visit_sum(torch::optim::AdagradParamState& state, const TensorVisit& visit) {
  visit_one(state.sum(), visit);
}

void visit_averages(torch::optim::RMSpropParamState& state, const TensorVisit& visit) {
  visit_one(state.square_avg(), visit);
  visit_one(state.momentum_buffer(), visit);
  visit_one(state.grad_avg(), visit);
}

void visit_directions(torch::optim::LBFGSParamState& state, const TensorVisit& visit) {
  visit_one(state.d(), visit);
  visit_one(state.H_diag(), visit);
  visit_one(state.prev_flat_grad(), visit);
  visit_all(state.old_dirs(), visit);
  visit_all(state.old_stps(), visit);
  visit_all(state.ro(), visit);
  if (state.al()) visit_all(*state.al(), visit);
}

template <typename Derived, typename Base>
bool is_a(const Base& object) {
  return dynamic_cast<const Derived*>(&object) != nullptr;
}

template <typename State, void (*kVisit)(State&, const TensorVisit&)>
constexpr StateKind state_kind(void (*set_step)(ParamState&, std::int64_t)) {
  return {.type = &typeid(State),
          .is = is_a<State, ParamState>,
          .visit = [](ParamState& state,
                      const TensorVisit& visit) { kVisit(static_cast<State&>(state), visit); },
          .set_step = set_step};
}

template <typename State>
void count(ParamState& state, std::int64_t steps) {
  static_cast<State&>(state).step(steps);
}

using torch::optim::AdagradParamState;
using torch::optim::AdamParamState;
using torch::optim::AdamWParamState;
using torch::optim::LBFGSParamState;
using torch::optim::RMSpropParamState;
using torch::optim::SGDParamState;

const StateKind kSgdState = state_kind<SGDParamState, visit_momentum>(nullptr);
const StateKind kAdamState =
    state_kind<AdamParamState, visit_moments<AdamParamState>>(count<AdamParamState>);
const StateKind kAdamWState =
    state_kind<AdamWParamState, visit_moments<AdamWParamState>>(count<AdamWParamState>);
const StateKind kAdagradState = state_kind<AdagradParamState, visit_sum>(count<AdagradParamState>);
const StateKind kRmspropState =
    state_kind<RMSpropParamState, visit_averages>(count<RMSpropParamState>);
const StateKind kLbfgsState = state_kind<LBFGSParamState, visit_directions>(nullptr);

template <typename OwnOptions>
double* decay_in(Options& options) {
  auto* const own = dynamic_cast<OwnOptions*>(&options);
  if constexpr (requires { own->weight_decay(); }) {
    return own == nullptr ? nullptr : &own->weight_decay();
  } else {
    return nullptr;
  }
}

double no_eps(const Options&) {
  return 0;
}

template <typename OwnOptions>
double eps_in(const Options& options) {
  const auto* const own = dynamic_cast<const OwnOptions*>(&options);
  return own == nullptr ? 0 : own->eps();
}

/// A row of an optimizer that is like most: options do not change its name, it makes its states
/// when it needs them and calls its closure once, before it moves anything.
template <typename Optimizer, typename OwnOptions>
OptimizerKind kind(std::string_view name, const StateKind& state) {
  return {.name = name,
          .type = &typeid(Optimizer),
          .is = is_a<Optimizer, torch::optim::Optimizer>,
          .name_by_options = nullptr,
          .state = &state,
          .weight_decay = decay_in<OwnOptions>,
          .eps = no_eps,
          .make_states = nullptr,
          .steps_split_masters = false,
          .evaluates_again = false};
}

template <typename Optimizer, typename OwnOptions>
OptimizerKind kind_with_eps(std::string_view name, const StateKind& state) {
  OptimizerKind row = kind<Optimizer, OwnOptions>(name, state);
  row.eps = eps_in<OwnOptions>;
  return row;
}

/// As its constructor does.
void make_sums(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const torch::optim::AdagradOptions&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
      if (state != nullptr) continue;
      auto made = std::make_unique<AdagradParamState>();
      made->sum(at::full_like(parameter.detach(), options.initial_accumulator_value()));
      state = std::move(made);
    }
  }
}

OptimizerKind adagrad_kind() {
  OptimizerKind row =
      kind<torch::optim::Adagrad, torch::optim::AdagradOptions>("Adagrad", kAdagradState);
  row.make_states = make_sums;
  return row;
}

OptimizerKind lbfgs_kind() {
  OptimizerKind row = kind<torch::optim::LBFGS, torch::optim::LBFGSOptions>("LBFGS", kLbfgsState);
  row.evaluates_again = true;
  return row;
}

/// Which of LibTorch's two a FusedAdam is; its groups may differ.
std::string name_of_fused_adam(const torch::optim::Optimizer& adam) {
  std::size_t decoupled = 0;
  for (const auto& group : adam.param_groups()) {
    const auto* options = dynamic_cast<const FusedAdamOptions*>(&group.options());
    if (options != nullptr && options->adam_w_mode()) ++decoupled;
  }
  if (decoupled == adam.param_groups().size()) return "AdamW";
  return decoupled == 0 ? "Adam" : std::string(kEitherAdam);
}

/// A row of an optimizer whose kernels take split masters.
template <typename Optimizer, typename OwnOptions>
OptimizerKind splitting_kind(std::string_view name, const StateKind& state) {
  OptimizerKind row = kind<Optimizer, OwnOptions>(name, state);
  row.steps_split_masters = true;
  return row;
}

OptimizerKind fused_adam_kind() {
  OptimizerKind row = splitting_kind<FusedAdam, FusedAdamOptions>("AdamW", kAdamState);
  row.name_by_options = name_of_fused_adam;
  return row;
}

}  // namespace

std::span<const OptimizerKind> optimizer_kinds() {
  static const OptimizerKind kinds[] = {
      kind<torch::optim::SGD, torch::optim::SGDOptions>("SGD", kSgdState),
      kind_with_eps<torch::optim::Adam, torch::optim::AdamOptions>("Adam", kAdamState),
      kind_with_eps<torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW", kAdamWState),
      adagrad_kind(),
      kind<torch::optim::RMSprop, torch::optim::RMSpropOptions>("RMSprop", kRmspropState),
      lbfgs_kind(),
      splitting_kind<FusedSGD, FusedSGDOptions>("SGD", kSgdState),
      fused_adam_kind(),
      kind<FusedAdagrad, FusedAdagradOptions>("Adagrad", kAdagradState),
      splitting_kind<FusedLAMB, FusedLAMBOptions>("FusedLAMB", kAdamState),
      kind<FusedNovoGrad, FusedNovoGradOptions>("FusedNovoGrad", kAdamState),
  };
  return kinds;
}

const OptimizerKind* kind_of(const torch::optim::Optimizer& optimizer) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.is(optimizer)) return &kind;
  }
  return nullptr;
}

const StateKind* kind_of(const ParamState& state) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.state->is(state)) return kind.state;
  }
  return nullptr;
}

std::string name_of(const torch::optim::Optimizer& optimizer) {
  const OptimizerKind* const kind = kind_of(optimizer);
  if (kind == nullptr) return c10::demangle(typeid(optimizer).name());
  return kind->name_by_options != nullptr ? kind->name_by_options(optimizer)
                                          : std::string(kind->name);
}

std::string name_from_file(std::string_view written) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.type->name() == written) return std::string(kind.name);
  }
  return std::string(written);
}

double* weight_decay_of(Options& options) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (double* const decay = kind.weight_decay(options)) return decay;
  }
  return nullptr;
}

}  // namespace mezzo::optim
