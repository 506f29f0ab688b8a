#include "imagenet/models/efficientnet.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>

namespace examples::imagenet {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

constexpr std::int64_t kEfficientBegin = 32, kEfficientEnd = 1280;
constexpr double kEfficientDropout = 0.2, kMostDropped = 0.2;

/// Weighs channels by what their means say.
class SqueezeExcitation : public Block {
 public:
  SqueezeExcitation(std::int64_t channels, std::int64_t squeezed)
      : fc1_(Conv2dOptions(channels, squeezed, 1)), fc2_(Conv2dOptions(squeezed, channels, 1)) {
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  at::Tensor forward(at::Tensor x) override {
    const at::Tensor means = torch::adaptive_avg_pool2d(x, {1, 1});
    return x * torch::sigmoid(fc2_(torch::silu(fc1_(means))));
  }

 private:
  Conv2d fc1_, fc2_;
};

struct BlockSizes {
  int widening, kernel, stride;
  std::int64_t in, out;
};

class MBConv : public Block {
 public:
  /// `dropped`: for which part of the images the block is left out in training.
  MBConv(const BlockSizes& s, double dropped)
      : adds_(s.stride == 1 && s.in == s.out), dropped_(dropped) {
    constexpr std::int64_t kSqueeze = 4;
    const std::int64_t hidden = s.in * s.widening;
    if (s.widening != 1) {
      block_->push_back(
          std::make_shared<ConvNorm>(ConvNorm::Sizes{s.in, hidden}, Activation::kSilu));
    }
    block_->push_back(std::make_shared<ConvNorm>(
        ConvNorm::Sizes{hidden, hidden, s.kernel, s.stride, hidden}, Activation::kSilu));
    block_->push_back(std::make_shared<SqueezeExcitation>(hidden, s.in / kSqueeze));
    block_->push_back(
        std::make_shared<ConvNorm>(ConvNorm::Sizes{hidden, s.out}, Activation::kNone));
    register_module("block", block_);
  }

  at::Tensor forward(at::Tensor x) override {
    at::Tensor y = block_->forward(x);
    if (!adds_) return y;
    if (!is_training() || dropped_ == 0) return x + y;
    const double kept = 1 - dropped_;
    const at::Tensor keep = torch::empty({x.size(0), 1, 1, 1}, y.options()).bernoulli_(kept);
    return x + y * keep.div_(kept);
  }

 private:
  bool adds_;
  double dropped_;
  torch::nn::Sequential block_;
};

struct EfficientStage {
  int widening, kernel, stride;
  std::int64_t out;
  int blocks;
};
constexpr EfficientStage kEfficientStages[] = {
    {1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
    {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

}  // namespace

EfficientNetB0::EfficientNetB0(std::int64_t kinds) {
  torch::nn::ModuleList features;
  const auto add_convolution = [&](const ConvNorm::Sizes& sizes) {
    blocks_.push_back(std::make_shared<ConvNorm>(sizes, Activation::kSilu));
    features->push_back(blocks_.back());
  };
  int total = 0, made = 0;
  for (const EfficientStage& stage : kEfficientStages) total += stage.blocks;

  add_convolution({3, kEfficientBegin, 3, 2});
  std::int64_t in = kEfficientBegin;
  for (const EfficientStage& stage : kEfficientStages) {
    torch::nn::ModuleList layer;
    for (int i = 0; i < stage.blocks; ++i) {
      const BlockSizes sizes{stage.widening, stage.kernel, i == 0 ? stage.stride : 1, in,
                             stage.out};
      blocks_.push_back(std::make_shared<MBConv>(sizes, kMostDropped * made++ / total));
      layer->push_back(blocks_.back());
      in = stage.out;
    }
    features->push_back(layer);
  }
  add_convolution({in, kEfficientEnd});
  register_module("features", features);

  torch::nn::Linear linear(kEfficientEnd, kinds);
  const double bound = 1 / std::sqrt(static_cast<double>(kinds));
  torch::nn::init::uniform_(linear->weight, -bound, bound);
  torch::nn::init::zeros_(linear->bias);
  classifier_->push_back(torch::nn::Dropout(kEfficientDropout));
  classifier_->push_back(linear);
  register_module("classifier", classifier_);
  initialize_convolutions(*this);
}

at::Tensor EfficientNetB0::classify(at::Tensor features) {
  return classifier_->forward(torch::adaptive_avg_pool2d(features, {1, 1}).flatten(1));
}

}  // namespace examples::imagenet
