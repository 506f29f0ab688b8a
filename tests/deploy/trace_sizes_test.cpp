// Sizes that a network reads itself are followed along dynamic axes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using ::testing::AllOf;
using ::testing::HasSubstr;

const DynamicAxes kBatchAndTime = {{"input_0", {{0, "batch"}, {1, "time"}}}};

template <typename Net>
void expect_same(torch::jit::Module& traced, Net& net, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const at::Tensor expected = net->forward(x), got = traced.forward({x}).toTensor();
  ASSERT_EQ(got.sizes(), expected.sizes());
  EXPECT_TRUE(torch::allclose(got, expected, 1e-5, 1e-6));
}

struct AttentionImpl : nn::Module {
  AttentionImpl() {
    register_module("attention", attention);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x.transpose(0, 1);
    const at::Tensor position = torch::arange(x.size(1)).to(torch::kFloat).unsqueeze(1) * 0.1;
    const at::Tensor z = std::get<0>(attention(y, y, y)) + position.unsqueeze(1);
    return out(z).transpose(0, 1).reshape({x.size(0), x.size(1) * 2, -1}) / x.size(1);
  }
  nn::MultiheadAttention attention{nn::MultiheadAttention(8, 2)};
  nn::Linear out{nn::Linear(8, 4)};
};
TORCH_MODULE(Attention);

TEST(TraceSizes, AttentionOverBatchAndTime) {
  Attention net;
  net->eval();
  torch::jit::Module traced =
      trace(net, {torch::randn({2, 5, 8})}, {.dynamic_axes = kBatchAndTime});
  for (const auto& [batch, time] : {std::pair{2, 5}, {1, 1}, {7, 4}, {3, 19}})
    expect_same(traced, net, torch::randn({batch, time, 8}));
}

struct RecurrentImpl : nn::Module {
  RecurrentImpl() { register_module("lstm", lstm); }
  at::Tensor forward(const at::Tensor& x) {
    return std::get<0>(lstm(x)).flatten(1).slice(1, 0, 3 * x.size(1));
  }
  nn::LSTM lstm{nn::LSTM(nn::LSTMOptions(4, 6).batch_first(true).bidirectional(true))};
};
TORCH_MODULE(Recurrent);

TEST(TraceSizes, TheHiddenStateOfAnLstm) {
  Recurrent net;
  net->eval();
  torch::jit::Module traced =
      trace(net, {torch::randn({2, 5, 4})}, {.dynamic_axes = kBatchAndTime});
  for (const auto& [batch, time] : {std::pair{1, 1}, {6, 3}, {4, 11}})
    expect_same(traced, net, torch::randn({batch, time, 4}));
}

struct PyramidImpl : nn::Module {
  PyramidImpl() {
    register_module("down", down);
    register_module("deeper", deeper);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor a = down(x), b = deeper(a);
    const at::Tensor up = F::interpolate(
        b, F::InterpolateFuncOptions().size(std::vector<int64_t>{a.size(2), a.size(3)}));
    const int64_t rest = (4 - x.size(3) % 4) % 4;
    return F::pad(a + up, F::PadFuncOptions({0, rest}));
  }
  nn::Conv2d down{nn::Conv2d(nn::Conv2dOptions(3, 4, 3).stride(2).padding(1))};
  nn::Conv2d deeper{nn::Conv2d(nn::Conv2dOptions(4, 4, 3).stride(2).padding(1))};
};
TORCH_MODULE(Pyramid);

TEST(TraceSizes, ImagesOfAnySize) {
  Pyramid net;
  net->eval();
  torch::jit::Module traced = trace(net, {torch::randn({1, 3, 16, 18})},
                                    {.dynamic_axes = {{"input_0", {{2, "height"}, {3, "width"}}}}});
  for (const auto& [height, width] : {std::pair{16, 18}, {9, 21}, {33, 8}, {40, 40}})
    expect_same(traced, net, torch::randn({1, 3, height, width}));
}

struct StepsImpl : nn::Module {
  StepsImpl() { register_module("cell", cell); }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::zeros({x.size(0), 4});
    for (const at::Tensor& step : x.unbind(1)) h = cell(step, h);
    return h;
  }
  nn::GRUCell cell{nn::GRUCell(3, 4)};
};
TORCH_MODULE(Steps);

TEST(TraceSizes, ALoopOverAnAxisIsRefusedByName) {
  Steps net;
  const at::Tensor x = torch::randn({2, 5, 3});
  EXPECT_THAT(message_of([&] { trace(net, {x}, {.dynamic_axes = kBatchAndTime}); }),
              AllOf(HasSubstr("the axis 'time' cannot be dynamic"), HasSubstr("cell")));
  torch::jit::Module traced = trace(net, {x}, {.dynamic_axes = {{"input_0", {{0, "batch"}}}}});
  expect_same(traced, net, torch::randn({9, 5, 3}));
}

struct OwnTensorImpl : nn::Module {
  OwnTensorImpl() { register_module("layer", layer); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x);
    return y + torch::full({}, static_cast<double>(x.size(0) * x.size(0) % 7));
  }
  nn::Linear layer{nn::Linear(3, 3)};
};
TORCH_MODULE(OwnTensor);

TEST(TraceSizes, ANumberThatNoArithmeticExplainsIsRefusedByName) {
  EXPECT_THAT(
      message_of([&] {
        trace(OwnTensor(), {torch::randn({2, 3})}, {.dynamic_axes = {{"input_0", {{0, "batch"}}}}});
      }),
      AllOf(HasSubstr("'batch'"), HasSubstr("aten::full after 'layer'")));
}

TEST(TraceSizes, NamesAndAxesThatAreNotThere) {
  const nn::Linear net(3, 2);
  const at::Tensor x = torch::randn({2, 3});
  EXPECT_THAT(message_of([&] {
                trace(net, {x}, {.dynamic_axes = {{"x", {{0, "batch"}}}}});
              }),
              HasSubstr("the inputs are input_0"));
  EXPECT_THAT(message_of([&] {
                trace(net, {x}, {.dynamic_axes = {{"input_0", {{2, "batch"}}}}});
              }),
              HasSubstr("which has 2 dimensions"));
  EXPECT_THAT(message_of([&] {
                trace(net, {x}, {.dynamic_axes = {{"input_0", {{1, "features"}}}}});
              }),
              HasSubstr("'features' cannot be dynamic: the network runs at no other size"));
}

}  // namespace
}  // namespace mezzo::deploy
