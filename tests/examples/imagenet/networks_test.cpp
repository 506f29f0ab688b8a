#include "imagenet/models/network.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>
#include <torch/torch.h>

#include "imagenet/train/normalize.h"
#include "imagenet/train/settings.h"
#include "imagenet/train/setup.h"

namespace examples::imagenet {
namespace {

using testing::HasSubstr;

struct Known {
  const char* name;
  std::int64_t kinds, parameters;
};

class Networks : public testing::TestWithParam<Known> {};
// As torchvision's documentation has them for ImageNet; resnet20: He et al., table 6, with
// projections.
INSTANTIATE_TEST_SUITE_P(
    All, Networks,
    testing::Values(Known{"resnet18", 1000, 11689512}, Known{"resnet34", 1000, 21797672},
                    Known{"resnet50", 1000, 25557032}, Known{"resnet101", 1000, 44549160},
                    Known{"resnet152", 1000, 60192808}, Known{"resnext50_32x4d", 1000, 25028904},
                    Known{"resnext101_32x8d", 1000, 88791336},
                    Known{"wide_resnet50_2", 1000, 68883240}, Known{"resnet20", 10, 272474},
                    Known{"mobilenet_v2", 1000, 3504872}, Known{"efficientnet_b0", 1000, 5288548}),
    [](const auto& known) { return std::string(known.param.name); });

TEST_P(Networks, HaveTheKnownNumberOfParameters) {
  std::int64_t count = 0;
  // Weights are not looked at: they need not be drawn.
  const c10::OptionalDeviceGuard none;
  for (const at::Tensor& p : make_network(GetParam().name, GetParam().kinds)->parameters())
    count += p.numel();
  EXPECT_EQ(count, GetParam().parameters);
}

TEST(Network, GivesALogitForEachClass) {
  const torch::NoGradGuard no_grad;
  for (const char* name : {"resnet18", "resnet50", "resnet20", "mobilenet_v2", "efficientnet_b0"}) {
    const auto network = make_network(name, 7);
    network->eval();
    const at::Tensor logits = network->forward(torch::randn({2, 3, 32, 32}));
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 7})) << name;
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << name;
  }
}

TEST(Network, HasTorchvisionsNames) {
  const auto has = [](const char* network, const char* parameter) {
    return make_network(network, 10)->named_parameters().contains(parameter);
  };
  EXPECT_TRUE(has("resnet18", "layer2.0.downsample.0.weight"));
  EXPECT_TRUE(has("resnet50", "layer1.0.conv3.weight"));
  EXPECT_TRUE(has("mobilenet_v2", "features.0.0.weight"));
  EXPECT_TRUE(has("mobilenet_v2", "features.1.conv.0.0.weight"));
  EXPECT_TRUE(has("mobilenet_v2", "features.2.conv.3.bias"));
  EXPECT_TRUE(has("mobilenet_v2", "classifier.1.weight"));
  EXPECT_TRUE(has("efficientnet_b0", "features.1.0.block.1.fc1.weight"));
  EXPECT_TRUE(has("efficientnet_b0", "features.2.1.block.3.1.weight"));
  EXPECT_TRUE(has("efficientnet_b0", "features.8.0.weight"));
}

TEST(Network, OfUnknownNameListsTheKnownOnes) {
  const auto why = [](const char* name) -> std::string {
    try {
      make_network(name, 10);
    } catch (const mezzo::ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(why("resnet51"), HasSubstr("unknown 'resnet51'; expected one of resnet18, resnet34"));
  EXPECT_THAT(why("inception_v3"), HasSubstr("needs images of 299 pixels"));
}

/// Gradients of all parameters after one step, from equal weights and random numbers.
std::vector<at::Tensor> gradients(const char* name, bool recompute) {
  torch::manual_seed(3);
  const auto network = make_network(name, 5);
  network->set_recompute(recompute);
  const at::Tensor images = torch::randn({4, 3, 16, 16});
  network->forward(images).square().mean().backward();
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : network->parameters()) all.push_back(p.grad());
  for (const at::Tensor& b : network->buffers()) all.push_back(b);
  return all;
}

TEST(Network, RecomputesToTheSameGradientsAndStatistics) {
  for (const char* name : {"resnet20", "efficientnet_b0"}) {
    const auto kept = gradients(name, false), repeated = gradients(name, true);
    ASSERT_EQ(kept.size(), repeated.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      ASSERT_TRUE(torch::equal(kept[i], repeated[i])) << name << ' ' << i;
  }
}

TEST(Network, KeepsLessWhenItRecomputes) {
  const auto saved = [](bool recompute) {
    torch::manual_seed(3);
    const auto network = make_network("resnet20", 5);
    network->set_recompute(recompute);
    std::int64_t nodes = 0;
    std::vector<std::shared_ptr<torch::autograd::Node>> open{
        network->forward(torch::randn({2, 3, 16, 16})).grad_fn()};
    std::set<torch::autograd::Node*> seen;
    while (!open.empty()) {
      const auto node = open.back();
      open.pop_back();
      if (node == nullptr || !seen.insert(node.get()).second) continue;
      nodes += node->name().find("Convolution") != std::string::npos ? 1 : 0;
      for (const auto& edge : node->next_edges()) open.push_back(edge.function);
    }
    return nodes;
  };
  EXPECT_EQ(saved(false), 21);  // 19 on the main path, 2 projections
  EXPECT_EQ(saved(true), 1);    // the first one, which is in no block
}

TEST(Setup, LaysWeightsOutByChannels) {
  Settings settings;
  settings.arch = "resnet20";
  const auto is_last = [&] {
    return network_for(settings, 10, at::kCPU)
        ->named_parameters()["layer1.0.conv1.weight"]
        .is_contiguous(at::MemoryFormat::ChannelsLast);
  };
  EXPECT_FALSE(is_last());
  settings.channels_last = true;
  EXPECT_TRUE(is_last());
}

TEST(Setup, AsksForDeterministicOperatorsOrFastOnes) {
  set_deterministic(true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  set_deterministic(false);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
}

TEST(Normalized, HasImageNetsMeanAndDeviationInBothLayouts) {
  const at::Tensor bytes = torch::randint(256, {2, 5, 5, 3}, at::kByte);
  const at::Tensor expected =
      ((bytes.to(at::kDouble) / 255 - torch::tensor({0.485, 0.456, 0.406}, at::kDouble)) /
       torch::tensor({0.229, 0.224, 0.225}, at::kDouble))
          .permute({0, 3, 1, 2});
  for (const bool channels_last : {false, true}) {
    const at::Tensor images = normalized(bytes, channels_last);
    EXPECT_TRUE(torch::allclose(images.to(at::kDouble), expected, 1e-6, 1e-6));
    EXPECT_EQ(images.is_contiguous(at::MemoryFormat::ChannelsLast), channels_last);
  }
}

}  // namespace
}  // namespace examples::imagenet
