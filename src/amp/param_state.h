// The tensors inside an optimizer's per-parameter state, by the rows of optim/kinds.h.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string_view>

#include "core/torch.h"

namespace mezzo::amp::detail {

/// Calls `visit` for every defined tensor of a state of a known class; the visitor may replace it.
/// Returns false for a class that is not known.
bool visit_tensors(torch::optim::OptimizerParamState& state,
                   const std::function<void(at::Tensor&)>& visit);

/// A copy that shares no memory. Throws UnsupportedError "[where] ..." for a class that is not
/// known.
std::unique_ptr<torch::optim::OptimizerParamState> deep_copy(
    const torch::optim::OptimizerParamState& state, std::string_view where);

/// Does this optimizer evaluate its closure more than once, or after it has moved weights? One of a
/// class that is not known may.
bool evaluates_repeatedly(const torch::optim::Optimizer& optimizer);

/// The `eps` that an optimizer's group adds to a denominator; 0 if it has none.
double eps_of(const torch::optim::OptimizerParamGroup& group);

}  // namespace mezzo::amp::detail
