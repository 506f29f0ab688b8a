// Casts of containers, written in TorchScript and compiled to graphs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>

#include "core/torch.h"

namespace mezzo::deploy::script {

/// A function of one value of this type, which returns it with tensors of the type `from` in the
/// type `to`. Lists and dictionaries are new ones.
std::shared_ptr<torch::jit::Graph> function_that_casts(const c10::TypePtr& type,
                                                       at::ScalarType from, at::ScalarType to);

/// A function of two tensors, which returns the first in the second's type if the first's type is
/// float32 or `low`.
std::shared_ptr<torch::jit::Graph> function_that_casts_like(at::ScalarType low);

/// Is there a tensor somewhere in a value of the type that such a function can reach?
bool may_hold_tensors(const c10::TypePtr& type);

}  // namespace mezzo::deploy::script
