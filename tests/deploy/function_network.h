// A network of C++ that is one function of two tensors.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <utility>

namespace mezzo::deploy {

struct FunctionNetworkImpl : torch::nn::Module {
  using Function = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  explicit FunctionNetworkImpl(Function given) : function(std::move(given)) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return function(x, y); }
  Function function;
};
TORCH_MODULE(FunctionNetwork);

}  // namespace mezzo::deploy
