// The two networks of DCGAN (Radford, Metz, Chintala 2015) for square images whose side is a power
// of two: each block of the generator doubles the side, each block of the discriminator halves it.
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>

namespace examples {

struct DcganSizes {
  std::int64_t image = 32;               ///< side of an image, a power of two from 8 on
  std::int64_t noise = 100;              ///< length of the vector that an image is made from
  std::int64_t generator_features = 32;  ///< channels before the last layer
  std::int64_t critic_features = 32;     ///< channels after the first layer
  std::int64_t channels = 1;
};

/// [N, noise, 1, 1] to images [N, channels, image, image] between -1 and 1.
inline torch::nn::Sequential make_generator(const DcganSizes& sizes) {
  using namespace torch::nn;
  std::int64_t features = sizes.generator_features * sizes.image / 8;
  const auto up = [](std::int64_t in, std::int64_t out) {
    return ConvTranspose2d(ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false));
  };
  Sequential net(ConvTranspose2d(ConvTranspose2dOptions(sizes.noise, features, 4).bias(false)),
                 BatchNorm2d(features), ReLU());
  for (std::int64_t side = 4; side < sizes.image / 2; side *= 2, features /= 2) {
    net->push_back(up(features, features / 2));
    net->push_back(BatchNorm2d(features / 2));
    net->push_back(ReLU());
  }
  net->push_back(up(features, sizes.channels));
  net->push_back(Tanh());
  return net;
}

/// Images to [N, 1, 1, 1]: above zero for "real". The sigmoid is part of the loss, which computes
/// it in float.
inline torch::nn::Sequential make_discriminator(const DcganSizes& sizes) {
  using namespace torch::nn;
  const auto down = [](std::int64_t in, std::int64_t out) {
    return Conv2d(Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
  };
  const auto leaky = [] { return LeakyReLU(LeakyReLUOptions().negative_slope(0.2)); };
  std::int64_t features = sizes.critic_features;
  Sequential net(down(sizes.channels, features), leaky());
  for (std::int64_t side = sizes.image / 2; side > 4; side /= 2, features *= 2) {
    net->push_back(down(features, features * 2));
    net->push_back(BatchNorm2d(features * 2));
    net->push_back(leaky());
  }
  net->push_back(Conv2d(Conv2dOptions(features, 1, 4).bias(false)));
  return net;
}

/// The paper's initial weights: normal with deviation 0.02, scales of batch norms around 1.
inline void initialize_weights(torch::nn::Module& net) {
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* norm = module->as<torch::nn::BatchNorm2d>()) {
      torch::nn::init::normal_(norm->weight, 1.0, 0.02);
      torch::nn::init::zeros_(norm->bias);
    } else {
      for (at::Tensor& weight : module->parameters(false))
        torch::nn::init::normal_(weight, 0.0, 0.02);
    }
  }
}

}  // namespace examples
