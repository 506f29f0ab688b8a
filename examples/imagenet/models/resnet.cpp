#include "imagenet/models/resnet.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

namespace examples::imagenet {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

constexpr int kExpansion = 4;  // of a bottleneck
constexpr int kWidth = 64;     // of a group, where a bottleneck is as wide as the first ResNet's

Conv2d convolution(std::int64_t in, std::int64_t out, int kernel, int stride = 1, int groups = 1) {
  return Conv2d(Conv2dOptions(in, out, kernel)
                    .stride(stride)
                    .padding((kernel - 1) / 2)
                    .groups(groups)
                    .bias(false));
}

/// Brings the input to the block's size and channels; nothing where it has them.
torch::nn::Sequential shortcut(std::int64_t in, std::int64_t out, int stride) {
  if (in == out && stride == 1) return nullptr;
  return torch::nn::Sequential(convolution(in, out, 1, stride), BatchNorm2d(out));
}

class BasicBlock : public Block {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, int stride)
      : conv1_(convolution(in, out, 3, stride)),
        conv2_(convolution(out, out, 3)),
        bn1_(out),
        bn2_(out),
        downsample_(shortcut(in, out, stride)) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  at::Tensor forward(at::Tensor x) override {
    const at::Tensor beside = downsample_.is_empty() ? x : downsample_->forward(x);
    x = torch::relu(bn1_(conv1_(x)));
    x = bn2_(conv2_(x));
    return torch::relu(x + beside);
  }

 private:
  Conv2d conv1_, conv2_;
  BatchNorm2d bn1_, bn2_;
  torch::nn::Sequential downsample_;
};

class Bottleneck : public Block {
 public:
  Bottleneck(std::int64_t in, std::int64_t middle, std::int64_t out, int stride, int groups)
      : conv1_(convolution(in, middle, 1)),
        conv2_(convolution(middle, middle, 3, stride, groups)),
        conv3_(convolution(middle, out, 1)),
        bn1_(middle),
        bn2_(middle),
        bn3_(out),
        downsample_(shortcut(in, out, stride)) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    register_module("conv3", conv3_);
    register_module("bn3", bn3_);
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  at::Tensor forward(at::Tensor x) override {
    const at::Tensor beside = downsample_.is_empty() ? x : downsample_->forward(x);
    x = torch::relu(bn1_(conv1_(x)));
    x = torch::relu(bn2_(conv2_(x)));
    x = bn3_(conv3_(x));
    return torch::relu(x + beside);
  }

 private:
  Conv2d conv1_, conv2_, conv3_;
  BatchNorm2d bn1_, bn2_, bn3_;
  torch::nn::Sequential downsample_;
};

}  // namespace

ResNet::ResNet(const ResNetSizes& sizes, std::int64_t kinds)
    : small_images_(sizes.small_images),
      conv1_(small_images_
                 ? convolution(3, sizes.channels, 3)
                 : Conv2d(Conv2dOptions(3, sizes.channels, 7).stride(2).padding(3).bias(false))),
      bn1_(sizes.channels),
      fc_(nullptr) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  std::int64_t in = sizes.channels;
  for (std::size_t stage = 0; stage < sizes.blocks.size() && sizes.blocks[stage] > 0; ++stage) {
    const std::int64_t planes = std::int64_t{sizes.channels} << stage;
    const std::int64_t out = planes * (sizes.bottleneck ? kExpansion : 1);
    const std::int64_t middle = planes * sizes.width / kWidth * sizes.groups;
    torch::nn::ModuleList layer;
    for (int i = 0; i < sizes.blocks[stage]; ++i) {
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      std::shared_ptr<Block> block;
      if (sizes.bottleneck) {
        block = std::make_shared<Bottleneck>(in, middle, out, stride, sizes.groups);
      } else {
        block = std::make_shared<BasicBlock>(in, out, stride);
      }
      layer->push_back(block);
      blocks_.push_back(std::move(block));
      in = out;
    }
    register_module("layer" + std::to_string(stage + 1), layer);
  }
  fc_ = register_module("fc", torch::nn::Linear(in, kinds));
  initialize_convolutions(*this);
}

at::Tensor ResNet::enter(at::Tensor images) {
  const at::Tensor x = torch::relu(bn1_(conv1_(images)));
  return small_images_ ? x : torch::max_pool2d(x, 3, 2, 1);
}

at::Tensor ResNet::classify(at::Tensor features) {
  return fc_(torch::adaptive_avg_pool2d(features, {1, 1}).flatten(1));
}

}  // namespace examples::imagenet
