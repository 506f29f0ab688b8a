// The tensors inside an optimizer's per-parameter state, which LibTorch keeps in classes of its own
// per optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>

#include "core/torch.h"

namespace mezzo::detail {

/// Calls `visit` for every defined tensor of a state that a parameter or optimizer of LibTorch has
/// (SGD, Adam, AdamW, Adagrad, RMSprop, LBFGS); the visitor may replace it. Returns false for a
/// class that is not known.
bool visit_tensors(torch::optim::OptimizerParamState& state,
                   const std::function<void(at::Tensor&)>& visit);

/// A copy that shares no memory; for an unknown class tensors may be shared.
std::unique_ptr<torch::optim::OptimizerParamState> deep_copy(
    const torch::optim::OptimizerParamState& state);

/// Does this optimizer evaluate its closure more than once, or after it has moved weights?
bool evaluates_repeatedly(const torch::optim::Optimizer& optimizer);

/// The `eps` that an optimizer's group adds to a denominator; 0 where it has none.
double eps_of(const torch::optim::OptimizerParamGroup& group);

}  // namespace mezzo::detail
