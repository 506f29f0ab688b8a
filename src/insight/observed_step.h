// A forward and a backward pass that somebody watches, and of which nothing stays.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/torch.h"
#include "insight/call_observer.h"
#include "insight/trial_rules.h"

namespace mezzo::insight {

/// The networks of a step, and the states of those that `initialize` has made models of.
struct Networks {
  std::vector<const torch::nn::Module*> modules;
  std::vector<mezzo::amp::detail::ModelState*> models;
};

/// The gradients that a backward pass brings to the results of a call, as far as it comes to them.
using Arriving = std::shared_ptr<std::vector<at::Tensor>>;
Arriving follow_results(const std::vector<at::Tensor>& results);

/// Runs the loss and its backward pass with respect to all trainable parameters, in that
/// precision, from `scale` times the loss. Gradients stay where they are; buffers, generators and
/// weights are given back. ConfigError from `where` for what is no loss.
void observe_step(const Networks& networks, const Precision& precision,
                  const std::function<at::Tensor()>& loss, double scale, std::string_view where,
                  CallListener& listener);

}  // namespace mezzo::insight
