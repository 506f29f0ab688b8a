// Operators of each class inside a scope, for both low types, native and emulated.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"

namespace mezzo::amp {
namespace {

namespace F = torch::nn::functional;

struct LowType : testing::TestWithParam<std::tuple<at::ScalarType, ComputeMode>> {
  LowType() { set_compute_mode(low(), std::get<1>(GetParam())); }
  ~LowType() override { set_compute_mode(low(), ComputeMode::kAuto); }
  static at::ScalarType low() { return std::get<0>(GetParam()); }
  static double tolerance() { return low() == at::kHalf ? 2e-3 : 1.6e-2; }
};

INSTANTIATE_TEST_SUITE_P(Types, LowType,
                         testing::Combine(testing::Values(at::kHalf, at::kBFloat16),
                                          testing::Values(ComputeMode::kNative,
                                                          ComputeMode::kEmulated)));

at::Tensor random_of(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

void expect_close(const at::Tensor& got, const at::Tensor& reference, double tolerance) {
  const double scale = reference.abs().max().item<double>();
  EXPECT_LE((got.to(at::kDouble) - reference).abs().max().item<double>(),
            tolerance * (scale + 1.0));
}

TEST_P(LowType, ComputesProductsInTheLowType) {
  torch::manual_seed(1);
  const at::Tensor a = random_of({5, 7});
  const at::Tensor b = random_of({7, 3});
  const Autocast scope(Policy::defaults(low()));
  const at::Tensor product = torch::mm(a, b);
  EXPECT_EQ(product.scalar_type(), low());
  expect_close(product, torch::mm(a.to(at::kDouble), b.to(at::kDouble)), tolerance());
}

TEST_P(LowType, ComputesConvolutionsInTheLowTypeForwardAndBackward) {
  torch::manual_seed(2);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
  const at::Tensor x = random_of({2, 3, 6, 6});
  torch::nn::Conv2d reference(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
  reference->to(at::kDouble);
  {
    torch::NoGradGuard guard;
    reference->weight.copy_(conv->weight);
    reference->bias.copy_(conv->bias);
  }
  at::Tensor y;
  {
    const Autocast scope(Policy::defaults(low()));
    y = conv(x);
  }
  EXPECT_EQ(y.scalar_type(), low());
  y.to(at::kFloat).square().sum().backward();
  reference(x.to(at::kDouble)).square().sum().backward();
  EXPECT_EQ(conv->weight.grad().scalar_type(), at::kFloat);
  expect_close(conv->weight.grad(), reference->weight.grad(), 4 * tolerance());
  expect_close(conv->bias.grad(), reference->bias.grad(), 4 * tolerance());
}

TEST_P(LowType, LinearLayersGetContiguousFloatGradients) {
  torch::manual_seed(3);
  torch::nn::Linear linear(8, 5);
  const at::Tensor x = random_of({4, 8});
  at::Tensor y;
  {
    const Autocast scope(Policy::defaults(low()));
    y = linear(x);
  }
  EXPECT_EQ(y.scalar_type(), low());
  y.to(at::kFloat).sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(linear->weight.grad().is_contiguous());
  expect_close(linear->weight.grad(), x.to(at::kDouble).sum(0).expand({5, 8}), tolerance());
}

TEST_P(LowType, ComputesSoftmaxNormsAndLossesInFloat) {
  const at::Tensor x = random_of({4, 6}).to(low());
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::softmax(x, 1).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::log_softmax(x, 1).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::layer_norm(x, {6}).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::exp(x).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::sum(x).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::mse_loss(x, x).scalar_type(), at::kFloat);
  EXPECT_EQ(F::cross_entropy(x, torch::zeros({4}, at::kLong)).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::binary_cross_entropy(torch::sigmoid(x), torch::ones_like(x)).scalar_type(),
            at::kFloat);
}

TEST_P(LowType, RespectsAnExplicitDtype) {
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::softmax(random_of({2, 2}).to(low()), 1, low()).scalar_type(), low());
}

TEST_P(LowType, LeavesNeutralOperatorsAlone) {
  const at::Tensor x = random_of({2, 3, 4, 4});
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::relu(x).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::relu(x.to(low())).scalar_type(), low());
  EXPECT_EQ(torch::max_pool2d(x.to(low()), 2).scalar_type(), low());
}

TEST_P(LowType, BatchNormKeepsItsInputsType) {
  torch::nn::BatchNorm2d norm(3);
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(norm(random_of({2, 3, 4, 4}).to(low())).scalar_type(), low());
  EXPECT_EQ(norm(random_of({2, 3, 4, 4})).scalar_type(), at::kFloat);
  EXPECT_EQ(norm->running_mean.scalar_type(), at::kFloat);
}

TEST_P(LowType, PromotesSequencesToTheWidest) {
  const at::Tensor x = random_of({2, 2});
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::cat({x, x.to(low())}).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::cat({x.to(low()), x.to(low())}).scalar_type(), low());
  EXPECT_EQ(torch::stack({x.to(low()), x}).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::cat({x.to(at::kHalf), x.to(at::kBFloat16)}).scalar_type(), at::kFloat);
}

TEST_P(LowType, NeverTouchesDoubles) {
  const at::Tensor x = random_of({3, 3}).to(at::kDouble);
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kDouble);
  EXPECT_EQ(torch::softmax(x, 1).scalar_type(), at::kDouble);
  EXPECT_THROW(torch::mm(x, random_of({3, 3})), c10::Error)
      << "a mixed call is left alone whole, so LibTorch refuses it";
}

TEST_P(LowType, NeverTouchesIntegers) {
  const at::Tensor x = torch::ones({3, 3}, at::kLong);
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kLong);
}

TEST_P(LowType, InPlaceResultsKeepTheTypeOfSelf) {
  at::Tensor y = torch::zeros({2, 2});
  const Autocast scope(Policy::defaults(low()));
  y.addmm_(random_of({2, 3}).to(low()), random_of({3, 2}));
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  at::Tensor z = torch::zeros({2, 2}, low());
  z.addmm_(random_of({2, 3}).to(low()), random_of({3, 2}));
  EXPECT_EQ(z.scalar_type(), low());
}

TEST_P(LowType, OutVariantsKeepTheTypeOfOut) {
  at::Tensor out = torch::zeros({2, 2});
  const Autocast scope(Policy::defaults(low()));
  torch::mm_out(out, random_of({2, 3}).to(low()), random_of({3, 2}));
  EXPECT_EQ(out.scalar_type(), at::kFloat);
}

TEST_P(LowType, RunsRecurrentLayersWithPackedSequencesToo) {
  torch::manual_seed(4);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
  const at::Tensor x = random_of({5, 2, 3});
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 3}).cpu());
  const at::Tensor expected = std::get<0>(lstm->forward(x));
  at::Tensor y;
  at::Tensor of_packed;
  {
    const Autocast scope(Policy::defaults(low()));
    y = std::get<0>(lstm->forward(x));
    of_packed = std::get<0>(lstm->forward_with_packed_input(packed)).data();
  }
  EXPECT_EQ(y.scalar_type(), low());
  EXPECT_EQ(of_packed.scalar_type(), low());
  expect_close(y, expected.detach().to(at::kDouble), 4 * tolerance());
  (y.to(at::kFloat).sum() + of_packed.to(at::kFloat).sum()).backward();
  for (const at::Tensor& weight : lstm->parameters())
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

template <typename Layer>
void expect_low_forward_and_backward(Layer layer, at::ScalarType low) {
  const at::Tensor x = random_of({5, 2, 3});
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 3}).cpu());
  at::Tensor y;
  at::Tensor of_packed;
  {
    const Autocast scope(Policy::defaults(low));
    y = std::get<0>(layer->forward(x));
    of_packed = std::get<0>(layer->forward_with_packed_input(packed)).data();
  }
  EXPECT_EQ(y.scalar_type(), low);
  EXPECT_EQ(of_packed.scalar_type(), low);
  const at::Tensor expected = std::get<0>(layer->forward(x)).detach().to(at::kDouble);
  expect_close(y, expected, 4 * LowType::tolerance());
  (y.to(at::kFloat).sum() + of_packed.to(at::kFloat).sum()).backward();
  for (const at::Tensor& weight : layer->parameters())
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

TEST_P(LowType, RunsEveryRecurrentLayerInBothDirections) {
  torch::manual_seed(6);
  namespace nn = torch::nn;
  expect_low_forward_and_backward(nn::LSTM(nn::LSTMOptions(3, 4).bidirectional(true)), low());
  expect_low_forward_and_backward(nn::GRU(nn::GRUOptions(3, 4).num_layers(2)), low());
  expect_low_forward_and_backward(nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kTanh)), low());
  expect_low_forward_and_backward(nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU)), low());
}

TEST_P(LowType, RunsRecurrentCells) {
  torch::nn::GRUCell gru(3, 4);
  torch::nn::LSTMCell lstm(3, 4);
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(gru(random_of({2, 3})).scalar_type(), low());
  EXPECT_EQ(std::get<0>(lstm(random_of({2, 3}))).scalar_type(), low());
}

TEST_P(LowType, RunsAttention) {
  const at::Tensor q = random_of({1, 2, 4, 8});
  const Autocast scope(Policy::defaults(low()));
  EXPECT_EQ(at::scaled_dot_product_attention(q, q, q).scalar_type(), low());
}

TEST_P(LowType, ABackwardInsideTheScopeCastsNothing) {
  const at::Tensor w = random_of({4, 4}).requires_grad_();
  const at::Tensor loss = (torch::mm(w, w) * torch::mm(w, w)).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor expected = w.grad().clone();
  w.mutable_grad().reset();
  const Autocast scope(Policy::defaults(low()));
  const auto before = cast_counts();
  loss.backward();
  EXPECT_EQ(cast_counts().activation_casts, before.activation_casts);
  EXPECT_TRUE(torch::equal(w.grad(), expected));
}

TEST_P(LowType, AScopeOpenedInsideABackwardPassCasts) {
  struct Recompute : torch::autograd::Function<Recompute> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list g) {
      const Autocast scope(Policy::defaults(low()));
      EXPECT_EQ(torch::mm(g[0], g[0]).scalar_type(), low());
      return g;
    }
  };
  const at::Tensor x = random_of({2, 2}).requires_grad_();
  Recompute::apply(x).sum().backward();
}

}  // namespace
}  // namespace mezzo::amp
