// A safetensors file with its metadata: what checkpoints are made of.
#pragma once

#include <map>
#include <string>

#include "core/torch.h"
#include "mezzo/safetensors.h"

namespace mezzo::amp::detail {

struct SafetensorsFile {
  torch::OrderedDict<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile load_safetensors_file(const std::string& path);

}  // namespace mezzo::amp::detail
