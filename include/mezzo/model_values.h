// Weights and buffers of a model as float values: to look at, to save, to load.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

#include "mezzo/export.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"

namespace mezzo {
namespace amp {

/// Copies of all parameters and buffers under the network's own names: float values from the
/// masters if there are any, low types as float, doubles and integers as they are.
MEZZO_API torch::OrderedDict<std::string, at::Tensor> model_state_dict(
    const detail::ModelHandle& model);

/// Writes these values into the network and its masters, whatever floating type they have. With
/// `strict`, names that one side lacks throw Error; shapes that differ always do. Nothing is
/// changed then.
MEZZO_API void load_model_state_dict(const detail::ModelHandle& model,
                                     const torch::OrderedDict<std::string, at::Tensor>& values,
                                     bool strict = true);

/// Reads a file that `torch::save(net, path)` or `torch::save(model, path)` wrote into a bare
/// network of the same class, whatever floating types the file and the network have: each tensor
/// keeps its type and takes the value. (LibTorch's own `torch::load(net, path)` takes over the
/// file's bytes: with other types it throws "setStorage ... out of bounds", or destroys the
/// values.) Throws Error, which names the file, and changes nothing, if it is no such file or of
/// another network. A network that `initialize` was given is loaded through its Model.
MEZZO_API void load_network(torch::nn::Module& net, const std::string& path);

/// torch::save(optimizer, path): the state of the inner optimizer in float, in LibTorch's own
/// format, and the counts of steps. Also reads what the bare optimizer saved.
MEZZO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                      const Optimizer& optimizer);
MEZZO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                     Optimizer& optimizer);

}  // namespace amp

namespace amp::detail {

/// torch::save(model, path): the values of `model_state_dict` in the format in which LibTorch saves
/// the bare network, so that a float network of the same class loads the file.
MEZZO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                      const ModelHandle& model);

/// torch::load(model, path): takes files of the model, of the bare float network and of the bare
/// half network. Throws Error, and changes nothing, for a file of another network.
MEZZO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                     const ModelHandle& model);

}  // namespace amp::detail
}  // namespace mezzo
