// MobileNetV2: https://arxiv.org/abs/1801.04381.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "imagenet/models/network.h"

namespace examples::imagenet {

class MobileNetV2 : public Network {
 public:
  explicit MobileNetV2(std::int64_t kinds);

 private:
  at::Tensor classify(at::Tensor features) override;

  torch::nn::Sequential classifier_;
};

}  // namespace examples::imagenet
