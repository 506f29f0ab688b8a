// Batch normalizations become part of the convolutions before them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/script/method.h"

namespace mezzo::deploy::script {

/// Folds each batch normalization in evaluation mode that reads nothing but a convolution which
/// nothing else reads, as far as the tensors of both are the module's own and no other node reads
/// the convolution's. The module gets the new weights; biases that it has no place for become
/// constants. Says in `warnings` which batch normalizations stay, and why. Returns how many were
/// folded.
std::int64_t fold_batch_norms(std::vector<ScriptMethod>& methods, const torch::jit::Module& module,
                              std::vector<std::string>& warnings);

}  // namespace mezzo::deploy::script
