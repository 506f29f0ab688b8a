// A network's values in float, in and out: the part that checkpoints share.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "amp/session.h"

namespace mezzo::amp::detail {

/// A copy of the tensor's value: its master's if there is one, low types as float.
at::Tensor float_value(Session& session, const at::Tensor& tensor);

/// Throws what `assign_values` would throw.
void check_values(const torch::nn::Module& module,
                  const torch::OrderedDict<std::string, at::Tensor>& values, bool strict);

/// The archive's values, cast to the types of the network's tensors. Throws Error, and changes
/// nothing, for a file of another network.
void load_values(torch::serialize::InputArchive& archive, const torch::nn::Module& module);

/// Writes values into a network and its masters by name; see load_model_state_dict.
void assign_values(Session& session, const torch::nn::Module& module,
                   const torch::OrderedDict<std::string, at::Tensor>& values, bool strict);

}  // namespace mezzo::amp::detail
