#include <torch/nn/modules/container/sequential.h>

#include "core/torch.h"
#include "mezzo/recompute.h"

namespace mezzo {

at::Tensor recompute_sequential(torch::nn::Sequential modules, int segments, at::Tensor x) {
  const auto count = static_cast<int>(modules->size());
  if (segments < 1 || segments > count) {
    raise<ConfigError>("recompute_sequential", "segments must be between 1 and the ", count,
                       " modules of the network, got ", segments);
  }
  for (int segment = 0; segment < segments; ++segment) {
    const int begin = segment * count / segments;
    const int end = (segment + 1) * count / segments;
    const auto run = [modules, begin, end](const at::Tensor& input) {
      torch::nn::Sequential own = modules;
      torch::nn::AnyValue value(input);
      for (int i = begin; i < end; ++i) value = (own->begin() + i)->any_forward(std::move(value));
      const at::Tensor* output = value.try_get<at::Tensor>();
      if (output == nullptr) {
        raise("recompute_sequential", "module ", end - 1,
              ", the last of its segment, must return a tensor, got ", value.type_info().name());
      }
      return *output;
    };
    x = segment + 1 < segments ? recompute(run, x) : run(x);
  }
  return x;
}

}  // namespace mezzo
