// Arguments that `initialize` refuses before it changes anything.
#pragma once

#include <memory>
#include <vector>

#include "amp/properties.h"
#include "mezzo/initialize.h"

namespace mezzo::amp::detail {

/// Throws ConfigError for empty handles, the same object twice, half weights, and optimizers that
/// own no parameter of the networks.
void check_arguments(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                     const std::vector<OptimizerRef>& optimizers, const Plan& plan);

}  // namespace mezzo::amp::detail
