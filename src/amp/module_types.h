// The element types of a network: what they may be when it arrives, and changing them in place.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/scalar_type.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

using mezzo::is_low;
/// Is its type one of the low types?
bool is_low(const at::Tensor& tensor);

/// The modules of a network with their names, the root first, each place once.
std::vector<std::pair<std::string, const torch::nn::Module*>> modules_of(
    const torch::nn::Module& root);

/// A batch norm of any dimension, with or without parameters.
bool is_batch_norm(const torch::nn::Module& module);

/// Does a network contain torch::nn::MultiheadAttention, whose C++ code fills the scores of padded
/// keys in float and float64 alone?
bool has_torch_attention(const torch::nn::Module& root);

/// Running means, variances and counters of the batch norms in a network.
std::vector<at::Tensor> batch_norm_statistics(const torch::nn::Module& root);

/// The name of the first parameter or buffer of a low type; empty if there is none.
std::string first_low_name(const torch::nn::Module& root);

struct Conversion {
  at::ScalarType to;
  bool keep_batch_norms;  // they stay float; doubles in them become it where `doubles_too`
  bool doubles_too;
  std::unordered_set<const c10::TensorImpl*> keeps_float;  // as batch norms do
};

/// Calls `visit(name, tensor, type)` for every tensor that the conversion would change, each once,
/// with the type that it is to get.
void for_each_to_convert(
    const torch::nn::Module& root, const Conversion& conversion,
    const std::function<void(const std::string&, at::Tensor&, at::ScalarType)>& visit);

/// Recurrent layers look at their weights' types and places once; after a change they must look
/// again.
void flatten_recurrent_weights(torch::nn::Module& root);

}  // namespace mezzo::amp::detail
