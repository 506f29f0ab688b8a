// One of each fused optimizer, for what holds of all of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mezzo/optim.h"

namespace mezzo::optim::testing_support {

using Make = std::function<std::unique_ptr<FusedOptimizer>(std::vector<at::Tensor>)>;
struct Kind {
  const char* name;
  Make make;
};

inline std::vector<Kind> kinds() {
  return {{"FusedAdam",
           [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedAdam>(params, FusedAdamOptions(0.01).amsgrad(true));
           }},
          {"FusedSGD",
           [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedSGD>(params, FusedSGDOptions(0.01).momentum(0.9));
           }},
          {"FusedLAMB",
           [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedLAMB>(params, FusedLAMBOptions(0.01));
           }},
          {"FusedNovoGrad",
           [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedNovoGrad>(params, FusedNovoGradOptions(0.01));
           }},
          {"FusedAdagrad",
           [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedAdagrad>(params, FusedAdagradOptions(0.01).lr_decay(0.1));
           }},
          {"FusedSGDWithDampening", [](std::vector<at::Tensor> params) {
             return std::make_unique<FusedSGD>(params,
                                               FusedSGDOptions(0.01).momentum(0.9).dampening(0.5));
           }}};
}

}  // namespace mezzo::optim::testing_support
