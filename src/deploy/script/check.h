// Checks before and after a conversion.
#pragma once

#include <vector>

#include "deploy/script/method.h"
#include "mezzo/deploy_script.h"

namespace mezzo::deploy::script {

/// Throws UnsupportedError if training is part of the graph itself.
void refuse_training(torch::jit::Graph& graph, const char* where);

/// Runs both modules on the inputs. Returns the largest error of an output relative to its range,
/// and infinity where an output is not finite although the original's is, or has another shape.
/// Neither module changes.
double error_between(const torch::jit::Module& original, const torch::jit::Module& converted,
                     const std::vector<c10::IValue>& inputs);

}  // namespace mezzo::deploy::script
