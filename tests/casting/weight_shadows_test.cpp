#include "casting/weight_shadows.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "casting/weights.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {
namespace {

// Casts of weights that happen while the function runs.
template <typename F>
std::int64_t weight_casts(F function) {
  const std::int64_t before = cast_counts().weight_casts;
  function();
  return cast_counts().weight_casts - before;
}

struct Shadows : testing::TestWithParam<ComputeMode> {
  Shadows() {
    torch::manual_seed(1);
    set_compute_mode(at::kBFloat16, GetParam());
  }
  ~Shadows() override { set_compute_mode(at::kBFloat16, ComputeMode::kAuto); }

  at::Tensor forward() {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return linear(x).to(at::kFloat);
  }
  // What the layer computes with its weight as it is now, cast afresh.
  at::Tensor expected() {
    const amp::DisableCasts off;
    const auto round = [](const at::Tensor& t) {
      return t.detach().to(at::kBFloat16).to(at::kFloat);
    };
    return torch::addmm(round(linear->bias), round(x), round(linear->weight).t())
        .to(at::kBFloat16)
        .to(at::kFloat);
  }
  void expect_current() { EXPECT_TRUE(torch::allclose(forward(), expected(), 2e-2, 2e-2)); }

  torch::nn::Linear linear{6, 5};
  at::Tensor x = torch::randn({3, 6});
};

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

TEST_P(Shadows, FollowsAnInPlaceWrite) {
  forward();
  torch::NoGradGuard guard;
  linear->weight.add_(1);
  expect_current();
}

TEST_P(Shadows, FollowsCopyAndFill) {
  forward();
  torch::NoGradGuard guard;
  linear->weight.copy_(torch::randn({5, 6}));
  expect_current();
  linear->weight.zero_();
  expect_current();
}

TEST_P(Shadows, FollowsSetData) {
  forward();
  linear->weight.set_data(torch::randn({5, 6}));
  expect_current();
}

TEST_P(Shadows, FollowsALoadedModule) {
  torch::nn::Linear other(6, 5);
  std::stringstream file;
  torch::save(other, file);
  forward();
  torch::load(linear, file);
  expect_current();
}

TEST_P(Shadows, FollowsAnAverageSwappedInAndOut) {
  forward();
  const at::Tensor own = linear->weight.detach().clone();
  torch::NoGradGuard guard;
  linear->weight.mul_(0.5);
  expect_current();
  linear->weight.copy_(own);
  expect_current();
}

template <typename Optimizer>
void train_three_steps(Optimizer& optimizer, const std::function<at::Tensor()>& forward,
                       const std::function<void()>& check) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    forward().square().sum().backward();
    optimizer.step();
    check();
  }
}

TEST_P(Shadows, FollowsEveryOptimizerAlsoThoseTheVersionCounterMisses) {
  const auto run = [&](auto&& optimizer) {
    train_three_steps(
        optimizer, [&] { return forward(); }, [&] { expect_current(); });
  };
  run(torch::optim::SGD(linear->parameters(), torch::optim::SGDOptions(0.1)));
  run(torch::optim::SGD(linear->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)));
  run(torch::optim::Adam(linear->parameters(), torch::optim::AdamOptions(0.1)));
  run(torch::optim::AdamW(linear->parameters(), torch::optim::AdamWOptions(0.1)));
  run(torch::optim::RMSprop(linear->parameters(), torch::optim::RMSpropOptions(0.1)));
  run(torch::optim::Adagrad(linear->parameters(), torch::optim::AdagradOptions(0.1)));
}

TEST_P(Shadows, AnIterationCastsEachWeightAtMostOnce) {
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.1));
  forward();
  for (int i = 0; i < 3; ++i) {
    const std::int64_t casts = weight_casts([&] {
      sgd.zero_grad();
      forward().square().sum().backward();
      sgd.step();
    });
    EXPECT_LE(casts, 2);
  }
}

TEST_P(Shadows, FollowsARawWriteAfterAGradientOrWhenTold) {
  forward().sum().backward();
  linear->weight.data().mul_(3);
  expect_current();
  torch::NoGradGuard guard;
  linear->weight.data().mul_(3);
  invalidate_casts({linear->weight});
  expect_current();
  linear->weight.data().mul_(0.3);
  invalidate_all_casts();
  expect_current();
}

TEST_P(Shadows, ARefreshTakesTheNewValuesAtOnce) {
  forward();
  linear->weight.data().mul_(3);
  EXPECT_EQ(weight_casts([&] { refresh_casts({linear->weight, linear->bias}); }), 2);
  EXPECT_EQ(weight_casts([&] { expect_current(); }), 0);
}

TEST_P(Shadows, ARefreshLeavesCopiesThatNobodyUsed) {
  forward();
  refresh_casts({linear->weight});
  EXPECT_EQ(weight_casts([&] { refresh_casts({linear->weight}); }), 0);
  expect_current();
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

TEST_P(Shadows, ARetainedGraphSurvivesALaterForward) {
  const at::Tensor first = forward().sum();
  first.backward({}, /*retain_graph=*/true);
  const at::Tensor second = forward().sum();
  EXPECT_NO_THROW((first + second).backward());
}

TEST_P(Shadows, AGraphOfAChangedWeightFailsAsItDoesInFloat) {
  const at::Tensor x2 = torch::randn({3, 6}).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    y = torch::mm(x2, linear->weight.t());
  }
  {
    torch::NoGradGuard guard;
    linear->weight.add_(1);
  }
  forward();
  EXPECT_THROW(y.to(at::kFloat).sum().backward(), c10::Error);
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

TEST_P(Shadows, FreezingAndUnfreezingIsFollowed) {
  forward().sum().backward();
  linear->zero_grad();
  linear->weight.set_requires_grad(false);
  forward().sum().backward();
  EXPECT_FALSE(linear->weight.grad().defined());
  linear->weight.set_requires_grad(true);
  forward().sum().backward();
  EXPECT_TRUE(linear->weight.grad().defined());
}

TEST_P(Shadows, ACopyDiesWithItsModel) {
  WeightShadows::global().sweep();
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

TEST_P(Shadows, FollowsAChangeOfLayoutInTheSameMemory) {
  const at::Tensor square = torch::randn({4, 4}).requires_grad_();
  const at::Tensor in = torch::randn({3, 4});
  const auto product = [&](const at::Tensor& weight) {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return torch::mm(in, weight).to(at::kFloat);
  };
  const at::Tensor before = product(square).detach();
  at::Tensor weight = square;
  weight.set_data(square.detach().t());
  const at::Tensor expected = product(square.detach().clone());
  EXPECT_FALSE(torch::equal(before, expected));
  EXPECT_TRUE(torch::equal(product(square).detach(), expected));
  product(square).sum().backward();
  EXPECT_TRUE(torch::allclose(square.grad(), in.sum(0).unsqueeze(1).expand({4, 4}), 2e-2, 2e-2));
}

TEST_P(Shadows, TheThreadsOwnMemoryOfAWeightKnowsWhenItIsAnother) {
  // New weights take the addresses of those that went before.
  for (int i = 0; i < 50; ++i) {
    linear = torch::nn::Linear(6, 5);
    forward();
    expect_current();
    const auto gradient = torch::autograd::grad({forward().sum()}, {linear->weight})[0];
    EXPECT_TRUE(torch::allclose(gradient[0], x.sum(0), 2e-2, 2e-2));
  }
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
    WeightShadows::global().sweep();
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
