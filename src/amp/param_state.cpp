#include "amp/param_state.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "mezzo/optim.h"

namespace mezzo::detail {
namespace {

using Visit = std::function<void(at::Tensor&)>;

void visit_one(at::Tensor& tensor, const Visit& visit) {
  if (tensor.defined()) visit(tensor);
}

template <typename Sequence>
void visit_all(Sequence& tensors, const Visit& visit) {
  for (at::Tensor& tensor : tensors) visit_one(tensor, visit);
}

template <typename State>
void visit_moments(State& state, const Visit& visit) {
  visit_one(state.exp_avg(), visit);
  visit_one(state.exp_avg_sq(), visit);
  visit_one(state.max_exp_avg_sq(), visit);
}

void visit_lbfgs(torch::optim::LBFGSParamState& state, const Visit& visit) {
  visit_one(state.d(), visit);
  visit_one(state.H_diag(), visit);
  visit_one(state.prev_flat_grad(), visit);
  visit_all(state.old_dirs(), visit);
  visit_all(state.old_stps(), visit);
  visit_all(state.ro(), visit);
  if (state.al()) visit_all(*state.al(), visit);
}

}  // namespace

bool visit_tensors(torch::optim::OptimizerParamState& state, const Visit& visit) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&state)) {
    visit_one(sgd->momentum_buffer(), visit);
  } else if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state)) {
    visit_moments(*adam, visit);
  } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state)) {
    visit_moments(*adamw, visit);
  } else if (auto* adagrad = dynamic_cast<torch::optim::AdagradParamState*>(&state)) {
    visit_one(adagrad->sum(), visit);
  } else if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(&state)) {
    visit_one(rmsprop->square_avg(), visit);
    visit_one(rmsprop->momentum_buffer(), visit);
    visit_one(rmsprop->grad_avg(), visit);
  } else if (auto* lbfgs = dynamic_cast<torch::optim::LBFGSParamState*>(&state)) {
    visit_lbfgs(*lbfgs, visit);
  } else {
    return false;
  }
  return true;
}

std::unique_ptr<torch::optim::OptimizerParamState> deep_copy(
    const torch::optim::OptimizerParamState& state) {
  auto copy = state.clone();
  visit_tensors(*copy, [](at::Tensor& tensor) { tensor = tensor.detach().clone(); });
  return copy;
}

bool evaluates_repeatedly(const torch::optim::Optimizer& optimizer) {
  using torch::optim::Adagrad;
  using torch::optim::Adam;
  using torch::optim::AdamW;
  using torch::optim::RMSprop;
  using torch::optim::SGD;
  return dynamic_cast<const optim::FusedOptimizer*>(&optimizer) == nullptr &&
         dynamic_cast<const SGD*>(&optimizer) == nullptr &&
         dynamic_cast<const Adam*>(&optimizer) == nullptr &&
         dynamic_cast<const AdamW*>(&optimizer) == nullptr &&
         dynamic_cast<const Adagrad*>(&optimizer) == nullptr &&
         dynamic_cast<const RMSprop*>(&optimizer) == nullptr;
}

double eps_of(const torch::optim::OptimizerParamGroup& group) {
  if (!group.has_options()) return 0;
  const torch::optim::OptimizerOptions& options = group.options();
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) {
    return adam->eps();
  }
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) {
    return adamw->eps();
  }
  return 0;
}

}  // namespace mezzo::detail
