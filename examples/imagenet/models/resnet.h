// ResNet, ResNeXt and the wide ResNet: https://arxiv.org/abs/1512.03385, 1611.05431, 1605.07146.
// The stride is in the 3x3 convolution, as torchvision has it.
#pragma once

#include <torch/nn/modules/linear.h>

#include <array>

#include "imagenet/models/network.h"

namespace examples::imagenet {

struct ResNetSizes {
  std::array<int, 4> blocks;  ///< of each stage; 0: there is none
  bool bottleneck;            ///< three convolutions a block, the middle one narrow
  int groups = 1;
  int width = 64;             ///< of a group in the first stage
  int channels = 64;          ///< of the first stage; each one doubles them
  bool small_images = false;  ///< of some 32 pixels: they are not made smaller before the stages
};

class ResNet : public Network {
 public:
  ResNet(const ResNetSizes& sizes, std::int64_t kinds);

 private:
  at::Tensor enter(at::Tensor images) override;
  at::Tensor classify(at::Tensor features) override;

  bool small_images_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Linear fc_;
};

}  // namespace examples::imagenet
