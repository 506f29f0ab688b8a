// An eager network as a TorchScript module of the same tensors, which has no code yet.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "core/torch.h"
#include "mezzo/deploy_call.h"

namespace mezzo::deploy {

/// Modules, parameters and buffers under the network's names; a module that stands in several
/// places is one module. Every module has the attribute `training`. Undefined tensors are left out.
torch::jit::Module mirror_of(const torch::nn::Module& net, bool training);

/// Puts another tensor in the place of the one with that path ("head.0.weight").
void replace_tensor(torch::jit::Module& module, const std::string& path, const at::Tensor& tensor);

/// A network as it is to be traced; its destructor leaves the network as it was found: modes of all
/// modules, values of buffers, low weights.
class Prepared {
 public:
  /// The masters of the call take the place of low parameters; of an initialized model, low
  /// parameters and buffers without one are widened.
  Prepared(const detail::NetworkCall& call, bool training);
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  /// The stand-ins of low tensors: path and float value.
  const std::vector<std::pair<std::string, at::Tensor>>& floats() const { return floats_; }

 private:
  struct Kept {
    at::Tensor tensor, before;
  };
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<Kept> buffers_, low_;
  std::vector<std::pair<std::string, at::Tensor>> floats_;
};

}  // namespace mezzo::deploy
