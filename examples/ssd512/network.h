// GluonCV's ssd_512_resnet50_v1_coco, layer for layer, with parameters that have MXNet's names.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace examples {

/// MXNet's BatchNorm: the running variance is that of the batch, not LibTorch's unbiased one, and a
/// batch of one value a channel is no error.
struct MxBatchNormImpl : torch::nn::Module {
  /// With `fix_gamma` gamma stays 1, MXNet's default for symbols.
  MxBatchNormImpl(std::int64_t channels, double epsilon, bool fix_gamma = false);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor gamma, beta, running_mean, running_var;

 private:
  double epsilon_;
};
TORCH_MODULE(MxBatchNorm);

/// A stage of ResNet v1: bottlenecks that add their input to the result of three convolutions.
/// Layers are numbered through the stage, as in MXNet.
class ResNetStageImpl : public torch::nn::Module {
 public:
  ResNetStageImpl(std::int64_t in, std::int64_t out, std::int64_t blocks, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x);

  /// Sets the last gamma of each bottleneck to zero, GluonCV's `last_gamma`: at first it only
  /// passes on its input, and gradients do not grow from block to block.
  void zero_last_gammas();

 private:
  struct Bottleneck {
    std::vector<std::pair<torch::nn::Conv2d, MxBatchNorm>> body, shortcut;
  };
  std::pair<torch::nn::Conv2d, MxBatchNorm> make_layer(const torch::nn::Conv2dOptions& options);

  std::vector<Bottleneck> blocks_;
  std::int64_t layers_ = 0;
};
TORCH_MODULE(ResNetStage);

/// ResNet-50 v1 without its last layer.
struct ResNetFeaturesImpl : torch::nn::Module {
  ResNetFeaturesImpl();
  /// The results of stages 3 and 4: 1024 channels at a 16th of the size, 2048 at a 32nd.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x);

  torch::nn::Conv2d conv0;
  MxBatchNorm batchnorm0;
  std::vector<ResNetStage> stages;
};
TORCH_MODULE(ResNetFeatures);

/// ResNet-50 v1, the network that the tutorial converts for inference: images to 1000 logits.
struct ResNet50Impl : torch::nn::Module {
  ResNet50Impl();
  at::Tensor forward(const at::Tensor& x);

  ResNetFeatures features;
  torch::nn::Linear output;
};
TORCH_MODULE(ResNet50);

/// SSD with six feature maps of that network and of what extends it.
class SsdImpl : public torch::nn::Module {
 public:
  explicit SsdImpl(std::int64_t classes = 80);

  /// Images [N, 3, H, W] to class logits [N, anchors, classes + 1], box offsets [N, anchors, 4] and
  /// the anchors [1, anchors, 4]: centre, width and height in pixels.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x);

  std::int64_t classes() const { return classes_; }

 private:
  const at::Tensor& anchors_for(const std::vector<at::Tensor>& maps);

  std::int64_t classes_;
  ResNetFeatures features_;
  std::vector<std::pair<torch::nn::Conv2d, MxBatchNorm>> expansion_;  // two for each map
  torch::nn::ModuleList class_predictors_, box_predictors_;
  std::vector<std::int64_t> anchored_sizes_;
  at::Tensor anchors_;
};
TORCH_MODULE(Ssd);

/// First weights: Kaiming's for the backbone, which the tutorial downloads instead, and GluonCV's
/// own for the rest.
void initialize_weights(torch::nn::Module& net);

}  // namespace examples
