// Networks that are low themselves and make tensors of their own: the whole-model levels.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "casting/scope.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {
namespace {

struct Setting {
  at::ScalarType low;
  ComputeMode computed;
};

class LowModel : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    torch::manual_seed(5);
    set_compute_mode(low(), GetParam().computed);
  }
  void TearDown() override { set_compute_mode(low(), ComputeMode::kAuto); }
  static at::ScalarType low() { return GetParam().low; }
  template <typename F>
  static at::Tensor inside(F work) {
    const Scope scope(Policy::defaults(low()), Mode::kWholeModel);
    return work();
  }
};

INSTANTIATE_TEST_SUITE_P(Casting, LowModel,
                         testing::Values(Setting{at::kHalf, ComputeMode::kNative},
                                         Setting{at::kHalf, ComputeMode::kEmulated},
                                         Setting{at::kBFloat16, ComputeMode::kNative},
                                         Setting{at::kBFloat16, ComputeMode::kEmulated}));

TEST_P(LowModel, LayersTakeFloatTensorsThatWereMadeInside) {
  torch::nn::Linear linear(8, 4);
  torch::nn::Linear plain(torch::nn::LinearOptions(8, 4).bias(false));
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(3, 4, 3));
  torch::nn::LSTM lstm(8, 4);
  torch::nn::GRU gru(8, 4);
  torch::nn::Bilinear bilinear(8, 8, 2);
  torch::nn::PReLU prelu;
  const std::vector<std::shared_ptr<torch::nn::Module>> modules{
      linear.ptr(), plain.ptr(),    convolution.ptr(), lstm.ptr(),
      gru.ptr(),    bilinear.ptr(), prelu.ptr()};
  for (const auto& module : modules) module->to(low());
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> calls{
      {"linear",
       [&] {
         return linear->forward(torch::rand({2, 8}));
       }},
      {"linear of three dimensions",
       [&] {
         return linear->forward(torch::rand({2, 3, 8}));
       }},
      {"linear without bias",
       [&] {
         return plain->forward(torch::rand({2, 8}));
       }},
      {"linear of a vector", [&] { return plain->forward(torch::rand({8})); }},
      {"convolution",
       [&] {
         return convolution->forward(torch::rand({2, 3, 5, 5}));
       }},
      {"lstm",
       [&] {
         return std::get<0>(lstm->forward(torch::rand({5, 2, 8})));
       }},
      {"lstm with float states",
       [&] {
         return std::get<0>(
             lstm->forward(torch::rand({5, 2, 8}, low()),
                           std::make_tuple(torch::zeros({1, 2, 4}), torch::zeros({1, 2, 4}))));
       }},
      {"gru",
       [&] {
         return std::get<0>(gru->forward(torch::rand({5, 2, 8})));
       }},
      {"bilinear",
       [&] {
         return bilinear->forward(torch::rand({2, 8}), torch::rand({2, 8}, low()));
       }},
      {"prelu", [&] { return prelu->forward(torch::rand({4})); }},
  };
  for (const auto& [name, call] : calls) {
    const at::Tensor got = inside(call);
    EXPECT_EQ(got.scalar_type(), low()) << name;
    EXPECT_TRUE(got.isfinite().all().item<bool>()) << name;
    EXPECT_NO_THROW(got.sum().backward()) << name;
  }
  for (const auto& module : modules) {
    for (const auto& item : module->named_parameters()) {
      const at::Tensor& grad = item.value().grad();
      ASSERT_TRUE(grad.defined()) << module->name() << ' ' << item.key();
      EXPECT_EQ(grad.scalar_type(), low()) << module->name() << ' ' << item.key();
      EXPECT_TRUE(grad.isfinite().all().item<bool>()) << module->name() << ' ' << item.key();
    }
  }
}

TEST_P(LowModel, AFloatModuleStaysFloat) {
  torch::nn::Linear linear(8, 4);
  const at::Tensor got = inside([&] { return linear->forward(torch::rand({2, 8}).to(low())); });
  EXPECT_EQ(got.scalar_type(), at::kFloat);
  got.sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), at::kFloat);
}

TEST_P(LowModel, DtypesOfEverythingElseStay) {
  const at::Tensor x = torch::rand({3, 4}).to(low());
  EXPECT_EQ(inside([&] { return torch::softmax(x, 1); }).scalar_type(), low());
  EXPECT_EQ(inside([&] { return torch::exp(x); }).scalar_type(), low());
  EXPECT_EQ(inside([&] { return x.sum(); }).scalar_type(), low());
  EXPECT_EQ(inside([&] { return x + torch::scalar_tensor(0.5F); }).scalar_type(), low());
  EXPECT_EQ(inside([&] { return torch::pow(x, torch::scalar_tensor(2.0F)); }).scalar_type(), low());
  EXPECT_EQ(inside([&] { return torch::layer_norm(x, {4}); }).scalar_type(), low());
  EXPECT_EQ(inside([&] {
              return torch::ones({3, 3}).mm(torch::ones({3, 3}));
            }).scalar_type(),
            at::kFloat);
}

TEST_P(LowModel, LossesTakeLowResultsAndFloatLabels) {
  const at::Tensor result = torch::rand({3, 4}).to(low()).requires_grad_();
  const at::Tensor label = torch::rand({3, 4});
  namespace F = torch::nn::functional;
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> losses{
      {"mse", [&] { return F::mse_loss(result, label); }},
      {"l1", [&] { return F::l1_loss(result, label); }},
      {"smooth_l1", [&] { return F::smooth_l1_loss(result, label); }},
      {"huber", [&] { return F::huber_loss(result, label); }},
      {"bce", [&] { return F::binary_cross_entropy(result.sigmoid(), label); }},
      {"bce with logits", [&] { return F::binary_cross_entropy_with_logits(result, label); }},
      {"kl_div", [&] { return F::kl_div(result, label); }},
      {"cross entropy",
       [&] {
         return torch::cross_entropy_loss(result, torch::tensor({0, 1, 3}, at::kLong),
                                          torch::rand({4}));
       }},
  };
  for (const auto& [name, loss] : losses) {
    EXPECT_NO_THROW({
      const at::Tensor got = inside(loss);
      EXPECT_EQ(torch::autograd::grad({got}, {result})[0].scalar_type(), low()) << name;
    }) << name;
  }
}

// Large means and small deviations: what statistics in 16 bits lose.
TEST_P(LowModel, NormsTakeTheirStatisticsInFloat) {
  const at::Tensor values = torch::randn({4, 6, 16, 16}) * 8 + 3;
  const at::Tensor weight = (torch::rand({6}) + 0.5).to(low());
  const at::Tensor bias = torch::rand({6}).to(low());
  const at::Tensor wide_weight = weight.to(at::kDouble);
  const at::Tensor wide_bias = bias.to(at::kDouble);
  using Norm = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;
  const std::vector<std::pair<const char*, Norm>> norms{
      {"instance",
       [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
         return torch::instance_norm(x, w, b, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"instance without weights",
       [](const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
         return torch::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"group", [](const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& b) { return torch::group_norm(x, 3, w, b); }},
      {"layer",
       [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
         return torch::layer_norm(x.transpose(1, 3), {6}, w, b);
       }},
      {"rms", [](const at::Tensor& x, const at::Tensor& w,
                 const at::Tensor&) { return torch::rms_norm(x.transpose(1, 3), {6}, w); }},
  };
  for (const auto& [name, norm] : norms) {
    const at::Tensor x = values.to(low()).requires_grad_();
    const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor got = inside([&, &apply = norm] { return apply(x, weight, bias); });
    const at::Tensor expected = norm(wide, wide_weight, wide_bias);
    EXPECT_EQ(got.scalar_type(), low()) << name;
    const double digit = low() == at::kHalf ? 0x1p-10 : 0x1p-7;
    EXPECT_TRUE(at::allclose(got.to(at::kDouble), expected, digit, digit)) << name;
    const at::Tensor cotangent = torch::randn(expected.sizes()).to(low());
    const at::Tensor gradient = torch::autograd::grad({got}, {x}, {cotangent})[0];
    const at::Tensor wanted =
        torch::autograd::grad({expected}, {wide}, {cotangent.to(at::kDouble)})[0];
    const double size = wanted.abs().max().item<double>();
    EXPECT_LT((gradient.to(at::kDouble) - wanted).abs().max().item<double>(), digit * size) << name;
  }
}

/// A batch norm over 6 channels with running statistics, by LibTorch's function of that name.
using RunningNorm =
    std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& mean, const at::Tensor& var, bool training)>;

std::vector<std::pair<const char*, RunningNorm>> running_norms() {
  using T = const at::Tensor&;
  return {{"batch_norm",
           [](T x, T w, T b, T mean, T var, bool training) {
             return torch::batch_norm(x, w, b, mean, var, training, 0.1, 1e-5, false);
           }},
          {"native_batch_norm",
           [](T x, T w, T b, T mean, T var, bool training) {
             return std::get<0>(torch::native_batch_norm(x, w, b, mean, var, training, 0.1, 1e-5));
           }},
          {"instance_norm", [](T x, T w, T b, T mean, T var, bool training) {
             return torch::instance_norm(x, w, b, mean, var, training, 0.1, 1e-5, false);
           }}};
}

TEST_P(LowModel, NormsWithRunningStatisticsTakeInputsAndParametersOfAnyTypes) {
  const at::Tensor values = torch::randn({4, 6, 8, 8}) * 2 + 1;
  const double digit = low() == at::kHalf ? 0x1p-9 : 0x1p-6;
  for (const auto& [name, norm] : running_norms()) {
    for (int types = 0; types < 16; ++types) {
      for (const bool training : {true, false}) {
        // Every mixture of input, weights, biases and statistics.
        const auto type = [&](int part) { return ((types >> part) & 1) != 0 ? low() : at::kFloat; };
        const std::string where = std::string(name) + ", types " + std::to_string(types) +
                                  (training ? ", training" : ", evaluation");
        const at::Tensor x = values.to(type(0)).requires_grad_();
        const at::Tensor weight = (torch::rand({6}) + 0.5).to(type(1)).requires_grad_();
        const at::Tensor bias = torch::rand({6}).to(type(2)).requires_grad_();
        const at::Tensor mean = torch::zeros({6}, type(3));
        const at::Tensor var = torch::ones({6}, type(3));
        const at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_();
        const at::Tensor wide_mean = mean.to(at::kDouble);
        const at::Tensor wide_var = var.to(at::kDouble);
        const at::Tensor got =
            inside([&, &apply = norm] { return apply(x, weight, bias, mean, var, training); });
        const at::Tensor expected =
            norm(wide_x, weight.detach().to(at::kDouble), bias.detach().to(at::kDouble), wide_mean,
                 wide_var, training);
        EXPECT_EQ(got.scalar_type(), x.scalar_type()) << where;
        EXPECT_TRUE(at::allclose(got.to(at::kDouble), expected, digit, 4 * digit)) << where;
        EXPECT_TRUE(at::allclose(mean.to(at::kDouble), wide_mean, digit, digit)) << where;
        EXPECT_TRUE(at::allclose(var.to(at::kDouble), wide_var, digit, digit)) << where;
        EXPECT_EQ(mean.scalar_type(), type(3)) << where;
        const at::Tensor cotangent = torch::randn(expected.sizes()).to(got.scalar_type());
        const auto gradients = torch::autograd::grad({got}, {x, weight, bias}, {cotangent});
        const at::Tensor wanted =
            torch::autograd::grad({expected}, {wide_x}, {cotangent.to(at::kDouble)})[0];
        const double size = wanted.abs().max().item<double>();
        EXPECT_LT((gradients[0].to(at::kDouble) - wanted).abs().max().item<double>(),
                  4 * digit * size)
            << where;
        EXPECT_EQ(gradients[1].scalar_type(), type(1)) << where;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::casting
