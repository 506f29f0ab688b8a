// Networks that say what is on a photograph, as chains of blocks. Parameters have torchvision's
// names, so that its weights fit.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>
#include <vector>

namespace examples::imagenet {

/// A part of a network: a tensor in, a tensor out.
struct Block : torch::nn::Module {
  virtual at::Tensor forward(at::Tensor x) = 0;
};

class Network : public torch::nn::Module {
 public:
  /// Logits [N, kinds] of images [N, 3, H, W].
  at::Tensor forward(at::Tensor images);

  /// On: blocks keep their inputs alone in training and are run again in the backward pass.
  void set_recompute(bool on) { recompute_ = on; }

 protected:
  /// The layers before the blocks.
  virtual at::Tensor enter(at::Tensor images) { return images; }
  /// Features [N, C, H, W] to logits.
  virtual at::Tensor classify(at::Tensor features) = 0;

  std::vector<std::shared_ptr<Block>> blocks_;

 private:
  bool recompute_ = false;
};

/// "resnet18, resnet34, ...".
std::string network_names();

/// A network with fresh weights from the default generator, as torchvision has them. Throws
/// mezzo::ConfigError for a name that is not in network_names().
std::shared_ptr<Network> make_network(const std::string& name, std::int64_t kinds);

enum class Activation { kNone, kRelu6, kSilu };

/// A convolution without bias that keeps the size (divided by the stride), a batch norm and an
/// activation: children "0" and "1".
class ConvNorm : public Block {
 public:
  struct Sizes {
    std::int64_t in, out, kernel = 1, stride = 1, groups = 1;
  };
  ConvNorm(const Sizes& sizes, Activation activation);
  at::Tensor forward(at::Tensor x) override;

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  Activation activation_;
};

/// Weights of convolutions by He's rule over what they give out, batch norms 1 and 0.
void initialize_convolutions(torch::nn::Module& module);

}  // namespace examples::imagenet
