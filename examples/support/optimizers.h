// The optimizers that a program can be told to train with, by name.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace examples {

/// An optimizer and the highest learning rate that suits it.
struct NamedOptimizer {
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  double peak_rate;
};

/// "sgd, fused-sgd, adam, ...".
std::string optimizer_names();

/// mezzo::ConfigError that lists the names where there is none of this name.
void require_optimizer(const std::string& name);

NamedOptimizer make_optimizer(const std::string& name, const std::vector<at::Tensor>& params);

/// Bytes of momenta and moments.
std::int64_t state_bytes(torch::optim::Optimizer& optimizer);

}  // namespace examples
