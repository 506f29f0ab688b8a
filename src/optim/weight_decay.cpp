#include "optim/weight_decay.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace mezzo::optim {
namespace {

template <typename... Known>
double* find(Options& options) {
  double* found = nullptr;
  const auto look = [&](auto* known) {
    if (known != nullptr) found = &known->weight_decay();
  };
  (look(dynamic_cast<Known*>(&options)), ...);
  return found;
}

}  // namespace

double* weight_decay_of(Options& options) {
  return find<torch::optim::SGDOptions, torch::optim::AdamOptions, torch::optim::AdamWOptions,
              torch::optim::AdagradOptions, torch::optim::RMSpropOptions, FusedAdamOptions,
              FusedSGDOptions, FusedLAMBOptions, FusedNovoGradOptions, FusedAdagradOptions>(
      options);
}

}  // namespace mezzo::optim
