#include "imagenet/models/mobilenet.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace examples::imagenet {
namespace {

constexpr std::int64_t kMobileBegin = 32, kMobileEnd = 1280;
constexpr double kMobileDropout = 0.2;

/// Widens, filters each channel by itself, narrows; added to its input where sizes allow.
class InvertedResidual : public Block {
 public:
  InvertedResidual(std::int64_t in, std::int64_t out, int stride, int widening)
      : adds_(stride == 1 && in == out) {
    const std::int64_t hidden = in * widening;
    if (widening != 1) {
      conv_->push_back(std::make_shared<ConvNorm>(ConvNorm::Sizes{in, hidden}, Activation::kRelu6));
    }
    conv_->push_back(std::make_shared<ConvNorm>(ConvNorm::Sizes{hidden, hidden, 3, stride, hidden},
                                                Activation::kRelu6));
    conv_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(hidden, out, 1).bias(false)));
    conv_->push_back(torch::nn::BatchNorm2d(out));
    register_module("conv", conv_);
  }

  at::Tensor forward(at::Tensor x) override {
    const at::Tensor y = conv_->forward(x);
    return adds_ ? x + y : y;
  }

 private:
  bool adds_;
  torch::nn::Sequential conv_;
};

struct MobileStage {
  int widening, channels, blocks, stride;
};
constexpr MobileStage kMobileStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2},
                                         {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
                                         {6, 320, 1, 1}};

}  // namespace

MobileNetV2::MobileNetV2(std::int64_t kinds) {
  blocks_.push_back(
      std::make_shared<ConvNorm>(ConvNorm::Sizes{3, kMobileBegin, 3, 2}, Activation::kRelu6));
  std::int64_t in = kMobileBegin;
  for (const MobileStage& stage : kMobileStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      blocks_.push_back(std::make_shared<InvertedResidual>(
          in, stage.channels, i == 0 ? stage.stride : 1, stage.widening));
      in = stage.channels;
    }
  }
  blocks_.push_back(
      std::make_shared<ConvNorm>(ConvNorm::Sizes{in, kMobileEnd}, Activation::kRelu6));
  torch::nn::ModuleList features;
  for (const auto& block : blocks_) features->push_back(block);
  register_module("features", features);

  torch::nn::Linear linear(kMobileEnd, kinds);
  constexpr double kDeviation = 0.01;
  torch::nn::init::normal_(linear->weight, 0, kDeviation);
  torch::nn::init::zeros_(linear->bias);
  classifier_->push_back(torch::nn::Dropout(kMobileDropout));
  classifier_->push_back(linear);
  register_module("classifier", classifier_);
  initialize_convolutions(*this);
}

at::Tensor MobileNetV2::classify(at::Tensor features) {
  return classifier_->forward(torch::adaptive_avg_pool2d(features, {1, 1}).flatten(1));
}

}  // namespace examples::imagenet
