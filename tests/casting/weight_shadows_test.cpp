#include "casting/weight_shadows.h"

#include <atomic>
#include <thread>

#include "casting/shadows.h"

namespace mezzo::casting {
namespace {

INSTANTIATE_TEST_SUITE_P(Modes, Shadows,
                         testing::Values(ComputeMode::kNative, ComputeMode::kEmulated));

TEST_P(Shadows, AWeightIsCastOnceAndUsedManyTimes) {
  EXPECT_EQ(weight_casts([&] { forward(); }), 2);
  EXPECT_EQ(weight_casts([&] {
              forward();
              forward();
              torch::NoGradGuard guard;
              forward();
            }),
            0);
}

TEST_P(Shadows, EvaluationCastsNoWeight) {
  torch::NoGradGuard guard;
  forward();
  EXPECT_EQ(weight_casts([&] { forward(); }), 0);
}

TEST_P(Shadows, ASecondUseInOneForwardAddsItsGradient) {
  at::Tensor both;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    both = linear(x).to(at::kFloat) + linear(x).to(at::kFloat);
  }
  both.sum().backward();
  const at::Tensor twice = linear->weight.grad().clone();
  linear->zero_grad();
  forward().sum().backward();
  EXPECT_TRUE(torch::allclose(twice, 2 * linear->weight.grad(), 1e-2, 1e-2));
}

TEST_P(Shadows, AFirstUseWithoutGradientsDoesNotCutLaterOnes) {
  {
    torch::NoGradGuard guard;
    forward();
  }
  forward().sum().backward();
  EXPECT_TRUE(linear->weight.grad().defined());
  EXPECT_GT(linear->weight.grad().abs().sum().item<double>(), 0);
}

TEST_P(Shadows, AFirstUseInInferenceModeDoesNotSpoilLaterOnes) {
  {
    const c10::InferenceMode inference;
    forward();
  }
  forward().sum().backward();
  linear->weight.data().mul_(2);
  expect_current();
}

TEST_P(Shadows, DoubleBackwardGoesThroughTheCopy) {
  const at::Tensor in = torch::randn({3, 6}).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    y = torch::tanh(torch::mm(in, linear->weight.t()).to(at::kFloat));
  }
  const auto gradient = torch::autograd::grad({y.sum()}, {in}, {}, true, /*create_graph=*/true)[0];
  gradient.square().sum().backward();
  ASSERT_TRUE(linear->weight.grad().defined());
  // The same in float64.
  const at::Tensor w = linear->weight.detach().to(at::kDouble).requires_grad_();
  const at::Tensor in64 = in.detach().to(at::kDouble).requires_grad_();
  const auto g64 =
      torch::autograd::grad({torch::tanh(torch::mm(in64, w.t())).sum()}, {in64}, {}, true, true)[0];
  g64.square().sum().backward();
  EXPECT_LT((linear->weight.grad().to(at::kDouble) - w.grad()).norm().item<double>(),
            0.05 * w.grad().norm().item<double>());
}

TEST_P(Shadows, OtherViewsOfAWeightHitTheSameCopy) {
  const at::Tensor in = torch::randn({3, 6});
  forward();
  EXPECT_EQ(weight_casts([&] {
              const amp::Autocast scope(Policy::defaults(at::kBFloat16));
              const at::Tensor y = torch::mm(in, linear->weight.narrow(0, 1, 2).t());
              y.to(at::kFloat).sum().backward();
            }),
            0);
  const at::Tensor gradient = linear->weight.grad();
  EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
  EXPECT_TRUE(torch::allclose(gradient[1], in.sum(0), 2e-2, 2e-2));
}

TEST_P(Shadows, AFrozenWeightThatIsRememberedIsCastOnce) {
  linear->weight.set_requires_grad(false);
  linear->bias.set_requires_grad(false);
  remember_weights({linear->weight, linear->bias});
  forward();
  EXPECT_EQ(weight_casts([&] { forward(); }), 0);
  linear->weight.zero_();
  expect_current();
}

TEST_P(Shadows, ACopyDiesWithItsModel) {
  WeightShadows::global().end_outermost_scope();
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
      linear->weight.getIntrusivePtr());
  forward();
  linear = torch::nn::Linear(1, 1);
  for (int i = 0; i < 16; ++i) const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_TRUE(weak.expired());
}

TEST_P(Shadows, ForgottenWeightsAreFreedAtOnce) {
  forward();
  forget_weights({linear->weight, linear->bias});
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
      linear->weight.getIntrusivePtr());
  linear = torch::nn::Linear(1, 1);
  EXPECT_TRUE(weak.expired());
}

TEST_P(Shadows, WeightGradientsArriveAsTheBackwardPassReachesThem) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4),
                            torch::nn::Linear(4, 4));
  std::vector<std::string> order;
  for (const auto& named : net->named_parameters()) {
    if (named.key().ends_with("weight")) {
      named.value().register_hook([&order, key = named.key()](const at::Tensor& g) {
        order.push_back(key);
        return g;
      });
    }
  }
  for (int i = 0; i < 2; ++i) {
    order.clear();
    const at::Tensor input = torch::randn({2, 4});
    at::Tensor y;
    {
      const amp::Autocast scope(Policy::defaults(at::kBFloat16));
      y = net->forward(input);
    }
    y.to(at::kFloat).sum().backward();
    EXPECT_EQ(order, (std::vector<std::string>{"2.weight", "1.weight", "0.weight"}))
        << "iteration " << i;
  }
}

TEST_P(Shadows, FourThreadsShareACopy) {
  forward();
  linear->zero_grad();
  std::vector<std::thread> threads;
  std::mutex mutex;
  at::Tensor sum = torch::zeros({5, 6});
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const at::Tensor y = forward();
        const auto g = torch::autograd::grad({y.sum()}, {linear->weight});
        const std::lock_guard lock(mutex);
        sum += g[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(torch::allclose(sum[0] / 80, x.sum(0), 2e-2, 2e-2));
}

TEST_P(Shadows, MoreWeightsThanAThreadRemembersAreEachCastOnce) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 1500; ++i)
    weights.push_back(torch::full({2, 2}, double(i % 100)).requires_grad_());
  const at::Tensor in = torch::ones({1, 2});
  const auto check = [&] {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    for (std::size_t i = 0; i < weights.size(); ++i)
      ASSERT_EQ(torch::mm(in, weights[i])[0][0].item<float>(), 2.0F * static_cast<float>(i % 100));
  };
  EXPECT_EQ(weight_casts(check), 1500);
  EXPECT_EQ(weight_casts(check), 0);
}

TEST_P(Shadows, TwoLowTypesOfOneWeightLiveSideBySide) {
  const at::Tensor w = torch::randn({4, 4}).requires_grad_();
  const at::Tensor in = torch::randn({2, 4});
  for (int i = 0; i < 3; ++i) {
    for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
      const amp::Autocast scope(Policy::defaults(low));
      const at::Tensor y = torch::mm(in, w);
      EXPECT_EQ(y.scalar_type(), low);
      const at::Tensor expected = torch::mm(in.to(low).to(at::kDouble), w.to(low).to(at::kDouble));
      EXPECT_TRUE(torch::allclose(y.to(at::kDouble), expected, 2e-2, 2e-2));
    }
  }
}

TEST_P(Shadows, ThreadsThatRefreshWhileOthersUseAgree) {
  const torch::NoGradGuard guard;
  linear->weight.fill_(1);
  linear->bias.zero_();
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      const torch::NoGradGuard no_grad;
      while (!stop) {
        const amp::Autocast scope(Policy::defaults(at::kBFloat16));
        const at::Tensor y = torch::mm(torch::ones({1, 6}), linear->weight.t());
        if (y[0][0].item<float>() != 6) ++wrong;
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    refresh_casts({linear->weight});
    invalidate_casts({linear->weight});
    if (i % 10 == 0) forget_weights({linear->weight});
    WeightShadows::global().end_outermost_scope();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Shadows, AViewMadeWithoutAGraphGivesNoGradientToTheWeight) {
  forward();
  at::Tensor view;
  {
    const torch::NoGradGuard guard;
    view = linear->weight.t();
  }
  const at::Tensor in = torch::randn({3, 6}).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    y = torch::mm(in, view);
  }
  y.to(at::kFloat).sum().backward();
  EXPECT_FALSE(linear->weight.grad().defined());
}

TEST_P(Shadows, ADetachedWeightGivesNoGradientToTheWeight) {
  forward();
  const at::Tensor in = torch::randn({3, 6}).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    y = torch::mm(in, linear->weight.detach().t());
  }
  y.to(at::kFloat).sum().backward();
  EXPECT_FALSE(linear->weight.grad().defined());
}

}  // namespace
}  // namespace mezzo::casting
