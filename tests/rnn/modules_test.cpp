// The layers as modules: copies, containers, printing, weights that are computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "mezzo/recompute.h"
#include "mezzo/reparameterization.h"
#include "reference.h"

namespace mezzo::rnn {
namespace {

const Options kOptions{.input_size = 4, .hidden_size = 6, .num_layers = 2};

TEST(RecurrentModules, AreClonedWithTheirKindAndWithoutTheirState) {
  mLSTM net(kOptions);
  net->init_hidden(3);
  const at::Tensor x = torch::randn({5, 3, 4});
  const at::Tensor wanted = std::get<0>(net(x));
  const auto copy = std::dynamic_pointer_cast<mLSTMImpl>(net->clone());
  ASSERT_TRUE(copy);
  EXPECT_TRUE(std::get<0>(copy->forward(x)).equal(wanted));
  EXPECT_TRUE(copy->kept_hidden().empty());
  {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& weight : net->parameters()) weight.zero_();
  }
  EXPECT_TRUE(std::get<0>(copy->forward(x)).equal(wanted));
}

TEST(RecurrentModules, StandInContainersAndArePrinted) {
  GRU gru(kOptions);
  const at::Tensor x = torch::randn({5, 3, 4});
  torch::nn::AnyModule any(gru);
  const auto [output, hidden] = any.forward<Output>(x);
  EXPECT_TRUE(output.equal(std::get<0>(gru(x))));
  torch::nn::Sequential sequential(gru);
  EXPECT_TRUE(std::get<0>(sequential->forward<Output>(x)).equal(output));
  std::ostringstream text;
  text << *gru;
  EXPECT_THAT(text.str(), testing::HasSubstr("mezzo::rnn::GRU(4, 6, num_layers=2, bias=true"));
}

TEST(RecurrentModules, RunAgainInABackwardPass) {
  mLSTM net(kOptions);
  const at::Tensor x = torch::randn({5, 3, 4}).requires_grad_();
  std::get<0>(net(x)).square().sum().backward();
  const at::Tensor of_x = x.grad().clone();
  const at::Tensor of_weight = net->parameters()[0].grad().clone();
  x.mutable_grad().reset();
  net->zero_grad();
  std::get<0>(recompute(net, x)).square().sum().backward();
  EXPECT_TRUE(x.grad().equal(of_x));
  EXPECT_TRUE(net->parameters()[0].grad().equal(of_weight));
}

TEST(RecurrentModules, TakeComputedWeights) {
  for (const bool collects : {false, true}) {
    LSTM net(kOptions);
    const at::Tensor x = torch::randn({5, 3, 4});
    const ForwardOptions how{.collect_hidden = collects};
    const at::Tensor wanted = std::get<0>(net->forward(x, {}, how));
    apply_weight_norm(*net);
    const at::Tensor got = std::get<0>(net->forward(x, {}, how));
    EXPECT_LT(largest_difference(got, wanted), 1e-5);
    got.sum().backward();
    EXPECT_TRUE(net->named_parameters()["weight_hh_l1_g"].grad().defined());
    remove_weight_norm(*net);
    EXPECT_LT(largest_difference(std::get<0>(net->forward(x, {}, how)), wanted), 1e-5);
  }
}

TEST(RecurrentModules, HaveGradientsOfGradients) {
  mLSTM net(Options{.input_size = 3, .hidden_size = 2});
  net->to(at::kDouble);
  const at::Tensor x = torch::randn({3, 2, 3}, at::kDouble).requires_grad_();
  const auto gradient = [&](const at::Tensor& at_x) {
    return torch::autograd::grad({std::get<0>(net(at_x)).square().sum()}, {at_x}, {},
                                 /*retain_graph=*/true, /*create_graph=*/true)[0];
  };
  const at::Tensor second = torch::autograd::grad({gradient(x).square().sum()}, {x})[0].flatten();
  const double step = 1e-6;
  for (const std::int64_t i : {0, 7, 17}) {
    const auto moved = [&](double by) {
      at::Tensor other = x.detach().clone();
      other.view(-1)[i] += by;
      return gradient(other.requires_grad_()).square().sum().item<double>();
    };
    EXPECT_NEAR(second[i].item<double>(), (moved(step) - moved(-step)) / (2 * step), 1e-6);
  }
}

}  // namespace
}  // namespace mezzo::rnn
