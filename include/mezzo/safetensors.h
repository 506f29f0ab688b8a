// Weights in the safetensors format, which Python programs read.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <map>
#include <string>

#include "mezzo/export.h"

namespace mezzo {

/// Writes tensors of any layout and device, in their order; the file appears whole or not at all,
/// and a symbolic link to it stays. Throws Error, which names file and tensor, for undefined
/// tensors, types that the format does not have, and files that cannot be written.
MEZZO_API void save_safetensors(const std::string& path,
                                const torch::OrderedDict<std::string, at::Tensor>& tensors,
                                const std::map<std::string, std::string>& metadata = {});

/// Reads all tensors, to the CPU, in the order in which the file has them. Throws Error, which
/// names the file, for one that is damaged, truncated, or of another format.
MEZZO_API torch::OrderedDict<std::string, at::Tensor> load_safetensors(const std::string& path);

}  // namespace mezzo
