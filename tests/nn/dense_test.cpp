#include <gmock/gmock.h>
#include <torch/torch.h>

#include "mezzo/autocast.h"
#include "mezzo/error.h"
#include "mezzo/nn.h"

namespace mezzo::nn {
namespace {

TEST(MLP, IsLinearAndActivationLayerByLayer) {
  const std::vector<std::pair<std::string, at::Tensor (*)(const at::Tensor&)>> activations{
      {"none", [](const at::Tensor& x) { return x.clone(); }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }}};
  for (const auto& [name, apply] : activations) {
    for (const bool bias : {true, false}) {
      torch::manual_seed(1);
      MLP mlp(MLPOptions{.sizes = {7, 13, 3}, .bias = bias, .activation = name});
      const at::Tensor x = torch::randn({2, 5, 7}).requires_grad_(true);
      const at::Tensor y = mlp(x);
      y.pow(2).sum().backward();
      std::vector<at::Tensor> leaves{x.detach().to(at::kDouble).requires_grad_(true)};
      for (const at::Tensor& p : mlp->parameters()) {
        leaves.push_back(p.detach().to(at::kDouble).requires_grad_(true));
      }
      at::Tensor h = leaves[0];
      for (std::size_t i = 0; i < 2; ++i) {
        h = h.matmul(leaves[1 + i * (bias ? 2 : 1)].t());
        if (bias) h = h + leaves[2 + i * 2];
        h = apply(h);
      }
      h.pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(y.detach().to(at::kDouble), h.detach(), 1e-4, 1e-5)) << name;
      EXPECT_TRUE(torch::allclose(x.grad().to(at::kDouble), leaves[0].grad(), 1e-4, 1e-5)) << name;
      for (std::size_t i = 0; i < mlp->parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(mlp->parameters()[i].grad().to(at::kDouble),
                                    leaves[1 + i].grad(), 1e-4, 1e-4));
      }
    }
  }
}

TEST(MLP, NamesAndStartsItsParametersAsTheOriginal) {
  torch::manual_seed(1);
  MLP mlp(MLPOptions{.sizes = {400, 600, 10}});
  const auto names = mlp->named_parameters().keys();
  EXPECT_THAT(names, testing::ElementsAre("weight_0", "bias_0", "weight_1", "bias_1"));
  EXPECT_NEAR(mlp->weights[0].std().item<double>(), std::sqrt(2.0 / 1000), 1e-3);
  EXPECT_NEAR(mlp->biases[0].std().item<double>(), std::sqrt(1.0 / 600), 5e-3);
}

TEST(MLP, BadOptionsAndInputsAreErrors) {
  EXPECT_THROW(MLP(MLPOptions{.sizes = {3, 4}, .activation = "tanh"}), ConfigError);
  EXPECT_THROW(MLP(MLPOptions{.sizes = {3}}), ConfigError);
  EXPECT_THROW(MLP(MLPOptions{.sizes = {3, 0}}), ConfigError);
  MLP mlp(MLPOptions{.sizes = {3, 4}});
  EXPECT_THROW(mlp(torch::randn({2, 4})), ConfigError);
  EXPECT_EQ(mlp(torch::randn({0, 3})).sizes(), at::IntArrayRef({0, 4}));
}

TEST(FusedDense, IsTorchsLinearAndItsParametersAreSet) {
  FusedDense dense(20, 30);
  torch::nn::Linear linear(20, 30);
  torch::NoGradGuard no_grad;
  linear->weight.copy_(dense->weight);
  linear->bias.copy_(dense->bias);
  const at::Tensor x = torch::randn({4, 20});
  EXPECT_TRUE(torch::allclose(dense(x), linear(x)));
  EXPECT_LT(dense->weight.abs().max().item<double>(), 1 / std::sqrt(20.0) + 1e-6);
  EXPECT_GT(dense->weight.abs().min().item<double>(), 0);
  EXPECT_EQ(FusedDense(2, 3, false)->parameters().size(), 1);
  EXPECT_THROW(FusedDense(0, 3), ConfigError);
  EXPECT_THROW(dense(torch::randn({4, 21})), ConfigError);
}

TEST(Dense, RunsLowInsideAScopeOfCastsAndItsGradientsAreFloat) {
  MLP mlp(MLPOptions{.sizes = {6, 8, 3}});
  FusedDense dense(6, 3);
  FusedDenseGeluDense block(6, 8, 3);
  const at::Tensor x = torch::randn({4, 6});
  const auto expect_low = [&](const at::Tensor& in_float, const at::Tensor& y,
                              const std::vector<at::Tensor>& parameters) {
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(torch::allclose(y.to(at::kFloat), in_float, 0.05, 0.05));
    y.to(at::kFloat).sum().backward();
    for (const at::Tensor& each : parameters) EXPECT_EQ(each.grad().scalar_type(), at::kFloat);
  };
  const at::Tensor of_mlp = mlp(x);
  const at::Tensor of_dense = dense(x);
  const at::Tensor of_block = block(x);
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  expect_low(of_mlp, mlp(x), mlp->parameters());
  expect_low(of_dense, dense(x), dense->parameters());
  expect_low(of_block, block(x), block->parameters());
}

TEST(Dense, TakesOneRowAndManyDimensionsAndIsCloned) {
  MLP mlp(MLPOptions{.sizes = {6, 8, 3}, .bias = false, .activation = "none"});
  FusedDense dense(6, 3, false);
  FusedDenseGeluDense block(6, 8, 3);
  const at::Tensor x = torch::randn({2, 5, 6});
  const auto expect_rows = [&](auto& layer) {
    const at::Tensor all = layer(x);
    EXPECT_EQ(all.sizes(), at::IntArrayRef({2, 5, 3}));
    EXPECT_TRUE(torch::allclose(layer(x[1][2]), all[1][2], 1e-5, 1e-6));
    EXPECT_EQ(layer(torch::empty({0, 6})).sizes(), at::IntArrayRef({0, 3}));
    using Impl = typename std::remove_cvref_t<decltype(layer)>::ContainedType;
    const auto copy = std::dynamic_pointer_cast<Impl>(layer->clone());
    EXPECT_TRUE(torch::equal(copy->forward(x), all));
    EXPECT_EQ(copy->parameters().size(), layer->parameters().size());
  };
  expect_rows(mlp);
  expect_rows(dense);
  expect_rows(block);
  mlp->to(at::kDouble);
  EXPECT_EQ(mlp(x.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(FusedDenseGeluDense, IsItsThreeParts) {
  FusedDenseGeluDense block(8, 16, 4);
  const at::Tensor x = torch::randn({3, 8}).requires_grad_(true);
  const at::Tensor y = block(x);
  const at::Tensor expected =
      at::gelu(x.matmul(block->weight1.t()) + block->bias1).matmul(block->weight2.t()) +
      block->bias2;
  EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-6));
  y.sum().backward();
  for (const at::Tensor& parameter : block->parameters()) EXPECT_TRUE(parameter.grad().defined());
  EXPECT_THROW(FusedDenseGeluDense(8, -1, 4), ConfigError);
}

}  // namespace
}  // namespace mezzo::nn
