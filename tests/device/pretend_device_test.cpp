#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "pretend/device.h"

namespace mezzo::pretend {
namespace {

TEST(PretendDevice, ComputesWhatTheHostDoes) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                            torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(4 * 36, 5));
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  const at::Tensor expected = net->forward(x);
  expected.square().sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : net->parameters()) gradients.push_back(p.grad().clone());
  net->zero_grad();
  net->to(device());
  const at::Tensor got = net->forward(x.to(device()));
  EXPECT_TRUE(got.is_cuda());
  got.square().sum().backward();
  EXPECT_TRUE(at::allclose(got.cpu(), expected, 1e-4, 1e-5));
  std::size_t i = 0;
  for (const at::Tensor& p : net->parameters()) {
    EXPECT_TRUE(at::allclose(p.grad().cpu(), gradients[i++], 1e-3, 1e-4));
  }
}

TEST(PretendDevice, RunsNothingBeforeSomebodyWaits) {
  const at::Tensor x = at::ones({4}, device());
  const Watch watch;
  const at::Tensor y = x + 1;
  EXPECT_EQ(watch.counts().waits, 0);
  EXPECT_EQ(y.sum().item<float>(), 8);
  EXPECT_EQ(watch.counts().waits, 1);
  EXPECT_EQ(watch.counts().scalars, 1);
  ASSERT_EQ(watch.stacks().size(), 1u);
}

TEST(PretendDeviceDeathTest, FaultsWhereTheHostTouchesItsMemory) {
  const at::Tensor x = at::ones({4}, device());
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x.data_ptr())),
               "the host touched memory of a device");
}

TEST(PretendDevice, ShowsAMissingEvent) {
  const c10::Stream other = new_stream();
  at::Tensor x = at::zeros({4}, device());
  finish();
  {
    const c10::StreamGuard guard(other);
    x.fill_(5);
  }
  const at::Tensor early = x.clone();
  EXPECT_EQ(early.sum().item<float>(), 0) << "nobody waited for the other stream";
  c10::Event event(at::kCUDA);
  event.record(other);
  event.block(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device()));
  EXPECT_EQ(x.sum().item<float>(), 20);
}

TEST(PretendDevice, ReplaysACaptureAndRunsNothingBefore) {
  const c10::Stream side = new_stream();
  at::Tensor x = at::zeros({4}, device());
  finish();
  Graph graph;
  {
    const c10::StreamGuard guard(side);
    graph.begin(side);
    x.add_(1);
    graph.end();
  }
  EXPECT_EQ(x.sum().item<float>(), 0);
  graph.replay();
  graph.replay();
  EXPECT_EQ(x.sum().item<float>(), 8);
}

TEST(PretendDevice, RefusesToWaitInACapture) {
  const c10::Stream side = new_stream();
  const at::Tensor x = at::zeros({4}, device());
  const c10::StreamGuard guard(side);
  Graph graph;
  graph.begin(side);
  EXPECT_THROW(x.sum().item<float>(), c10::Error);
  EXPECT_THROW(graph.end(), c10::Error);
}

TEST(PretendDevice, TellsTwoDevicesApart) {
  const at::Tensor x = at::ones({4}, device(0));
  const at::Tensor y = at::ones({4}, device(1));
  EXPECT_THROW(x + y, c10::Error);
  EXPECT_EQ((x + y.to(device(0))).sum().item<float>(), 8);
}

TEST(PretendDevice, MakesTensorsByDefaultWhereItIsTold) {
  const DefaultDevice here;
  EXPECT_TRUE(torch::randn({3}).is_cuda());
  EXPECT_TRUE(torch::nn::Linear(2, 3)->weight.is_cuda());
  EXPECT_FALSE(torch::zeros({3}, at::kCPU).is_cuda());
}

TEST(PretendDevice, RunsRecurrentLayers) {
  torch::manual_seed(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
  torch::nn::GRU gru(3, 4);
  const at::Tensor x = torch::randn({5, 2, 3});
  const auto run = [&] {
    const at::Device where = lstm->parameters()[0].device();
    const at::Tensor loss = std::get<0>(lstm->forward(x.to(where))).square().sum() +
                            std::get<0>(gru->forward(x.to(where))).square().sum();
    loss.backward();
    std::vector<at::Tensor> all{loss.detach().cpu()};
    for (auto* net : {static_cast<torch::nn::Module*>(lstm.get()),
                      static_cast<torch::nn::Module*>(gru.get())}) {
      for (const at::Tensor& p : net->parameters()) all.push_back(p.grad().cpu().clone());
      net->zero_grad();
    }
    return all;
  };
  const std::vector<at::Tensor> expected = run();
  lstm->to(device());
  gru->to(device());
  const std::vector<at::Tensor> got = run();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-5)) << i;
  }
}

TEST(PretendDevice, GivesResultsWhoseSizeDependsOnNumbers) {
  const at::Tensor x = at::arange(6, at::kFloat).to(device());
  static_cast<void>(x.clone());  // memory that is had again
  const Watch watch;
  const at::Tensor places = at::nonzero(x > 2);
  EXPECT_EQ(watch.counts().waits, 1);
  EXPECT_TRUE(at::equal(places.cpu().view({-1}), at::arange(3, 6)));
  EXPECT_TRUE(at::equal(x.index({x > 3}).cpu(), at::arange(4, 6, at::kFloat)));
}

TEST(PretendDevice, RepeatsAndNormalises) {
  const at::Tensor x = at::arange(6, at::kFloat).view({1, 2, 3});
  EXPECT_TRUE(at::equal(x.to(device()).repeat({2, 1, 2}).cpu(), x.repeat({2, 1, 2})));
  torch::nn::InstanceNorm1d norm(torch::nn::InstanceNorm1dOptions(2).track_running_stats(true));
  const at::Tensor expected = norm->forward(x);
  norm->to(device());
  EXPECT_TRUE(at::allclose(norm->forward(x.to(device())).cpu(), expected, 1e-4, 1e-5));
}

TEST(PretendDevice, TakesSoftmaxOfHalfNumbersInFloat) {
  at::Tensor x = torch::randn({3, 4}).to(at::kHalf).to(device()).requires_grad_();
  const at::Tensor y = at::softmax(x, 1, at::kFloat);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  (y * y).sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kHalf);
  at::Tensor z = x.detach().cpu().to(at::kFloat).requires_grad_();
  at::softmax(z, 1).square().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad().cpu().to(at::kFloat), z.grad(), 1e-2, 1e-3));
}

TEST(PretendDevice, RunsAttention) {
  const at::Tensor q = torch::randn({1, 2, 5, 4}, device());
  const at::Tensor out = at::scaled_dot_product_attention(q, q, q);
  EXPECT_TRUE(at::allclose(out.cpu(), at::scaled_dot_product_attention(q.cpu(), q.cpu(), q.cpu()),
                           1e-4, 1e-5));
}

}  // namespace
}  // namespace mezzo::pretend
