// EfficientNet-B0: https://arxiv.org/abs/1905.11946.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "imagenet/models/network.h"

namespace examples::imagenet {

class EfficientNetB0 : public Network {
 public:
  explicit EfficientNetB0(std::int64_t kinds);

 private:
  at::Tensor classify(at::Tensor features) override;

  torch::nn::Sequential classifier_;
};

}  // namespace examples::imagenet
