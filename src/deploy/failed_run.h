// A network that does not run on its examples: where it stopped, and the sizes there.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "core/torch.h"

namespace mezzo::deploy {

/// For messages: who runs a network, and on what.
struct RunOf {
  std::string where;                    // "trace"
  std::string inputs = "the examples";  // or "check_with"
};

/// Throws Error: the network does not run on the values. It names the operator and the module at
/// which the record ends, the sizes of the operator's tensors and of the inputs, and what the
/// exception says.
/// @param graph  what LibTorch recorded until then
/// @param mirror  the module whose parameters the graph reads
[[noreturn]] void raise_failed_run(const RunOf& run, const std::vector<c10::IValue>& values,
                                   const std::shared_ptr<torch::jit::Graph>& graph,
                                   const torch::jit::Module& mirror, const std::exception& error);

}  // namespace mezzo::deploy
