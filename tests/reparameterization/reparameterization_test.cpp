// Weights that are computed: values, gradients, trees, removal, rules of one's own.
#include "mezzo/reparameterization.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "dcgan/spectral_norm.h"
#include "mezzo/error.h"

namespace mezzo {
namespace {

using Names = std::vector<std::string>;

TEST(WeightNorm, KeepsTheValueAndTrainsDirectionAndLength) {
  for (const std::int64_t dim : {0, 1, -1}) {
    torch::nn::Linear layer(4, 3);
    const at::Tensor before = layer->weight.detach().clone();
    apply_weight_norm(*layer, "weight", dim);
    EXPECT_EQ(layer->named_parameters().keys(), (Names{"bias", "weight_g", "weight_v"}));
    EXPECT_TRUE(layer->weight.allclose(before, 1e-6));
    const auto parameters = layer->named_parameters();
    EXPECT_EQ(parameters["weight_g"].sizes(),
              dim == 0 ? at::IntArrayRef({3, 1}) : at::IntArrayRef({1, 4}));
    EXPECT_TRUE(parameters["weight_v"].equal(before));
  }
}

TEST(WeightNorm, GradientsAreThoseOfTheFormulaInFloat64) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 4, 2).bias(false));
  apply_weight_norm(*layer);
  const at::Tensor x = torch::randn({2, 3, 5, 5});
  auto handle = reparameterized(layer);
  handle(x).square().sum().backward();
  const auto parameters = layer->named_parameters();
  const at::Tensor g = parameters["weight_g"].detach().to(at::kDouble).requires_grad_();
  const at::Tensor v = parameters["weight_v"].detach().to(at::kDouble).requires_grad_();
  const at::Tensor w = g * v / v.flatten(1).norm(2, 1).view({4, 1, 1, 1});
  torch::conv2d(x.to(at::kDouble), w).square().sum().backward();
  for (const auto& [got, wanted] :
       {std::pair(parameters["weight_g"], g), std::pair(parameters["weight_v"], v)})
    EXPECT_TRUE(got.grad().to(at::kDouble).allclose(wanted.grad(), 1e-4, 1e-4));
}

TEST(WeightNorm, EachCallFollowsTheParameters) {
  torch::nn::Linear layer(4, 3);
  apply_weight_norm(*layer);
  auto handle = reparameterized(layer);
  const at::Tensor x = torch::randn({2, 4});
  const at::Tensor first = handle(x) - layer->bias;
  {
    const torch::NoGradGuard no_grad;
    layer->named_parameters()["weight_g"].mul_(2);
  }
  EXPECT_TRUE((handle(x) - layer->bias).allclose(2 * first, 1e-5, 1e-6));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(handle(x).requires_grad());
}

TEST(WeightNorm, TreesLeaveVectorsAndEmbeddingsAlone) {
  torch::nn::Sequential net(torch::nn::Embedding(5, 4), torch::nn::Linear(4, 4),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
  apply_weight_norm(*net);
  const Names wanted{"0.weight", "1.bias", "1.weight_g", "1.weight_v", "2.weight", "2.bias"};
  EXPECT_EQ(net->named_parameters().keys(), wanted);
  apply_weight_norm(*net);
  EXPECT_EQ(net->named_parameters().keys(), wanted) << "a second time changes nothing";
}

TEST(WeightNorm, RecurrentLayersUseTheComputedWeights) {
  torch::nn::LSTM lstm(4, 3), like(4, 3);
  {
    const torch::NoGradGuard no_grad;
    auto to = like->named_parameters();
    for (const auto& item : lstm->named_parameters()) to[item.key()].copy_(item.value());
  }
  apply_weight_norm(*lstm);
  auto handle = reparameterized(lstm);
  const at::Tensor x = torch::randn({5, 2, 4});
  EXPECT_TRUE(std::get<0>(handle(x)).allclose(std::get<0>(like(x)), 1e-5, 1e-6));
  {
    const torch::NoGradGuard no_grad;
    lstm->named_parameters()["weight_hh_l0_g"].mul_(3);
    like->named_parameters()["weight_hh_l0"].mul_(3);
  }
  const at::Tensor y = std::get<0>(handle(x));
  EXPECT_TRUE(y.allclose(std::get<0>(like(x)), 1e-5, 1e-6));
  y.sum().backward();
  EXPECT_GT(lstm->named_parameters()["weight_ih_l0_v"].grad().abs().max().item<float>(), 0);
}

TEST(WeightNorm, RemovalMakesParametersAgain) {
  for (const bool hook_child : {true, false}) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 2));
    apply_weight_norm(*net, "", 0, hook_child);
    const at::Tensor x = torch::randn({3, 4});
    recompute_weights(*net);
    const at::Tensor before = net->forward(x);
    remove_weight_norm(*net);
    EXPECT_TRUE(net->forward(x).equal(before));
    EXPECT_EQ(net->named_parameters().size(), 4u);
    EXPECT_TRUE(net->children()[0]->children().empty());
    net->forward(x).sum().backward();
    const at::Tensor weight = net->named_parameters()["0.weight"];
    EXPECT_TRUE(weight.is_leaf());
    EXPECT_TRUE(weight.grad().defined());
  }
  torch::nn::Linear layer(4, 3);
  EXPECT_THROW(remove_weight_norm(*layer, "weight"), ConfigError);
  EXPECT_THROW(apply_weight_norm(*layer, "weights"), ConfigError);
  EXPECT_THROW(apply_weight_norm(*layer, "weight", 2), ConfigError);
}

TEST(WeightNorm, SecondDerivatives) {
  torch::nn::Linear layer(4, 1);
  layer->to(at::kDouble);
  apply_weight_norm(*layer);
  recompute_weights(*layer);
  const at::Tensor x = torch::randn({2, 4}, at::kDouble).requires_grad_();
  const at::Tensor slope = torch::autograd::grad({layer(x).tanh().sum()}, {x}, {}, true, true)[0];
  slope.square().sum().backward();
  EXPECT_GT(layer->named_parameters()["weight_g"].grad().abs().item<double>(), 0);
}

TEST(WeightNorm, NormsAreSafeInFloat16) {
  torch::nn::Linear layer(64, 2);
  {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(1000);
    layer->weight[1].fill_(0);
  }
  layer->to(at::kHalf);
  apply_weight_norm(*layer);
  recompute_weights(*layer);
  EXPECT_EQ(layer->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(layer->weight[0][0].item<float>(), 1000);
  EXPECT_EQ(layer->weight[1][0].item<float>(), 0);
}

TEST(Reparameterization, RulesOfOnesOwn) {
  using examples::SpectralNorm;
  torch::nn::Sequential net(torch::nn::Linear(6, 5), torch::nn::Linear(5, 3));
  apply_reparameterization<SpectralNorm>(*net);
  apply_weight_norm(*net, "1.bias");
  EXPECT_TRUE(net->named_parameters().contains("0.weight_orig"));
  for (int i = 0; i < 30; ++i) recompute_weights(*net);
  const auto layer = net->ptr<torch::nn::LinearImpl>(0);
  const at::Tensor largest = std::get<1>(torch::linalg_svd(layer->weight.detach())).max();
  EXPECT_NEAR(largest.item<float>(), 1, 1e-3);
  remove_weight_norm(*net);
  EXPECT_TRUE(net->named_parameters().contains("0.weight_orig")) << "of another kind";
  remove_reparameterization<SpectralNorm>(*layer, "", /*remove_all=*/true);
  EXPECT_TRUE(net->named_parameters().contains("0.weight"));
  EXPECT_TRUE(net->named_parameters().contains("1.weight_orig"));
}

}  // namespace
}  // namespace mezzo
