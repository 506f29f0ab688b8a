#include "imagenet/models/network.h"

#include <mezzo/error.h>
#include <mezzo/recompute.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include "imagenet/models/efficientnet.h"
#include "imagenet/models/mobilenet.h"
#include "imagenet/models/resnet.h"

namespace examples::imagenet {
namespace {

using Kinds = std::int64_t;

struct Row {
  const char* name;
  std::shared_ptr<Network> (*make)(Kinds);
};

template <ResNetSizes sizes>
std::shared_ptr<Network> resnet(Kinds kinds) {
  return std::make_shared<ResNet>(sizes, kinds);
}

constexpr Row kNetworks[] = {
    {"resnet18", resnet<ResNetSizes{{2, 2, 2, 2}, false}>},
    {"resnet34", resnet<ResNetSizes{{3, 4, 6, 3}, false}>},
    {"resnet50", resnet<ResNetSizes{{3, 4, 6, 3}, true}>},
    {"resnet101", resnet<ResNetSizes{{3, 4, 23, 3}, true}>},
    {"resnet152", resnet<ResNetSizes{{3, 8, 36, 3}, true}>},
    {"resnext50_32x4d", resnet<ResNetSizes{{3, 4, 6, 3}, true, 32, 4}>},
    {"resnext101_32x8d", resnet<ResNetSizes{{3, 4, 23, 3}, true, 32, 8}>},
    {"wide_resnet50_2", resnet<ResNetSizes{{3, 4, 6, 3}, true, 1, 128}>},
    {"resnet20", resnet<ResNetSizes{.blocks = {3, 3, 3, 0},
                                    .bottleneck = false,
                                    .channels = 16,
                                    .small_images = true}>},  // for images of 32 pixels
    {"mobilenet_v2",
     [](Kinds kinds) -> std::shared_ptr<Network> { return std::make_shared<MobileNetV2>(kinds); }},
    {"efficientnet_b0",
     [](Kinds kinds) -> std::shared_ptr<Network> {
       return std::make_shared<EfficientNetB0>(kinds);
     }},
};

}  // namespace

at::Tensor Network::forward(at::Tensor images) {
  at::Tensor x = enter(std::move(images));
  for (const auto& block : blocks_)
    x = recompute_ && is_training() ? mezzo::recompute(block, x) : block->forward(x);
  return classify(x);
}

std::string network_names() {
  std::string names;
  for (const Row& row : kNetworks) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

std::shared_ptr<Network> make_network(const std::string& name, std::int64_t kinds) {
  for (const Row& row : kNetworks) {
    if (name == row.name) return row.make(kinds);
  }
  if (name.starts_with("inception")) {
    throw mezzo::ConfigError("--arch: '" + name +
                             "' needs images of 299 pixels and has a second loss, which this "
                             "program does not have; expected one of " +
                             network_names());
  }
  throw mezzo::ConfigError("--arch: unknown '" + name + "'; expected one of " + network_names());
}

ConvNorm::ConvNorm(const Sizes& sizes, Activation activation)
    : conv_(torch::nn::Conv2dOptions(sizes.in, sizes.out, sizes.kernel)
                .stride(sizes.stride)
                .padding((sizes.kernel - 1) / 2)
                .groups(sizes.groups)
                .bias(false)),
      norm_(sizes.out),
      activation_(activation) {
  register_module("0", conv_);
  register_module("1", norm_);
}

at::Tensor ConvNorm::forward(at::Tensor x) {
  x = norm_(conv_(x));
  switch (activation_) {
    case Activation::kRelu6:
      return torch::hardtanh(x, 0, 6);
    case Activation::kSilu:
      return torch::silu(x);
    case Activation::kNone:
      break;
  }
  return x;
}

void initialize_convolutions(torch::nn::Module& module) {
  for (const auto& part : module.modules(/*include_self=*/false)) {
    if (auto* conv = part->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      if (conv->bias.defined()) torch::nn::init::zeros_(conv->bias);
    }
  }
}

}  // namespace examples::imagenet
