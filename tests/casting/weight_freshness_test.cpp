// A stale copy of a weight is impossible, whoever changes the weight and however.
#include <sstream>

#include "casting/shadows.h"

namespace mezzo::casting {
namespace {

struct Freshness : Shadows {};

INSTANTIATE_TEST_SUITE_P(Modes, Freshness,
                         testing::Values(ComputeMode::kNative, ComputeMode::kEmulated));

TEST_P(Freshness, FollowsAnInPlaceWrite) {
  forward();
  torch::NoGradGuard guard;
  linear->weight.add_(1);
  expect_current();
}

TEST_P(Freshness, FollowsCopyAndFill) {
  forward();
  torch::NoGradGuard guard;
  linear->weight.copy_(torch::randn({5, 6}));
  expect_current();
  linear->weight.zero_();
  expect_current();
}

TEST_P(Freshness, FollowsSetData) {
  forward();
  linear->weight.set_data(torch::randn({5, 6}));
  expect_current();
}

TEST_P(Freshness, FollowsALoadedModule) {
  torch::nn::Linear other(6, 5);
  std::stringstream file;
  torch::save(other, file);
  forward();
  torch::load(linear, file);
  expect_current();
}

TEST_P(Freshness, FollowsAnAverageSwappedInAndOut) {
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

TEST_P(Freshness, FollowsEveryOptimizerAlsoThoseTheVersionCounterMisses) {
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

TEST_P(Freshness, AnIterationCastsEachWeightAtMostOnce) {
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

TEST_P(Freshness, FollowsARawWriteAfterAGradientOrWhenTold) {
  forward().sum().backward();
  linear->weight.data().mul_(3);
  expect_current();
  torch::NoGradGuard guard;
  linear->weight.data().mul_(3);
  invalidate_casts({linear->weight});
  expect_current();
  linear->weight.data().mul_(0.3);
  amp::invalidate_casts({linear->weight, linear->bias, torch::ones({1}), at::Tensor()});
  expect_current();
  linear->weight.data().mul_(2);
  drop_all_casts();
  expect_current();
}

TEST_P(Freshness, ARefreshTakesTheNewValuesAtOnce) {
  forward();
  linear->weight.data().mul_(3);
  EXPECT_EQ(weight_casts([&] { refresh_casts({linear->weight, linear->bias}); }), 2);
  EXPECT_EQ(weight_casts([&] { expect_current(); }), 0);
}

TEST_P(Freshness, ARefreshLeavesCopiesThatNobodyUsed) {
  forward();
  refresh_casts({linear->weight});
  EXPECT_EQ(weight_casts([&] { refresh_casts({linear->weight}); }), 0);
  expect_current();
}

TEST_P(Freshness, ARetainedGraphSurvivesALaterForward) {
  const at::Tensor first = forward().sum();
  first.backward({}, /*retain_graph=*/true);
  const at::Tensor second = forward().sum();
  const at::Tensor of_one = linear->weight.grad().clone();
  (first + second).backward();
  EXPECT_TRUE(torch::allclose(linear->weight.grad(), 3 * of_one, 1e-2))
      << "the first graph twice, the second once, over the same weights and inputs";
}

TEST_P(Freshness, AGraphOfAChangedWeightFailsAsItDoesInFloat) {
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

TEST_P(Freshness, FreezingAndUnfreezingIsFollowed) {
  forward().sum().backward();
  linear->zero_grad();
  linear->weight.set_requires_grad(false);
  forward().sum().backward();
  EXPECT_FALSE(linear->weight.grad().defined());
  linear->weight.set_requires_grad(true);
  forward().sum().backward();
  EXPECT_TRUE(linear->weight.grad().defined());
}

TEST_P(Freshness, FollowsAChangeOfLayoutInTheSameMemory) {
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

TEST_P(Freshness, TheThreadsOwnMemoryOfAWeightKnowsWhenItIsAnother) {
  // New weights take the addresses of those that went before.
  for (int i = 0; i < 50; ++i) {
    linear = torch::nn::Linear(6, 5);
    forward();
    expect_current();
    const auto gradient = torch::autograd::grad({forward().sum()}, {linear->weight})[0];
    EXPECT_TRUE(torch::allclose(gradient[0], x.sum(0), 2e-2, 2e-2));
  }
}

TEST_P(Freshness, FollowsAMoveWithinTheSameMemory) {
  const at::Tensor memory = torch::randn({60});
  linear->weight.set_data(memory.narrow(0, 0, 30).view({5, 6}));
  expect_current();
  linear->weight.set_data(memory.narrow(0, 30, 30).view({5, 6}));
  expect_current();
  linear->weight.set_data(memory.narrow(0, 1, 30).view({5, 6}));
  expect_current();
}

TEST_P(Freshness, FollowsAChangeOfLayoutUnderATransposedUse) {
  const at::Tensor square = torch::randn({4, 4}).requires_grad_();
  const at::Tensor in = torch::randn({3, 4});
  const auto product = [&] {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return torch::mm(in, square.t()).to(at::kFloat);
  };
  const auto expect = [&] {
    const at::Tensor exact = torch::mm(in, square.detach().t());
    EXPECT_TRUE(torch::allclose(product(), exact, 3e-2, 3e-2));
    square.mutable_grad().reset();
    product().select(1, 0).sum().backward();
    EXPECT_TRUE(torch::allclose(square.grad()[0], in.sum(0), 2e-2, 2e-2));
    EXPECT_EQ(square.grad().slice(0, 1).abs().sum().item<float>(), 0);
  };
  expect();
  at::Tensor weight = square;
  weight.set_data(square.detach().t());
  expect();
  expect();
}

TEST_P(Freshness, FollowsAChangeOfTypeInTheSameMemory) {
  const at::Tensor in = torch::randn({3, 4}).to(at::kHalf);
  at::Tensor weight = torch::randn({4, 4}).to(at::kHalf).requires_grad_();
  const auto product = [&](const at::Tensor& w) {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return torch::mm(in, w).to(at::kFloat).detach();
  };
  const at::Tensor before = product(weight);
  weight.set_data(weight.detach().view(at::kBFloat16));
  const at::Tensor after = product(weight);
  EXPECT_TRUE(torch::equal(after, product(weight.detach().clone())));
  EXPECT_FALSE(torch::equal(after, before));
}

TEST_P(Freshness, AWeightThatNeverWantedAGradientMayWantOneLater) {
  at::Tensor weight = torch::randn({4, 4});
  remember_weights({weight});
  const auto product = [&] {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return torch::mm(torch::ones({2, 4}), weight).to(at::kFloat);
  };
  EXPECT_EQ(weight_casts([&] {
              product();
              EXPECT_FALSE(product().requires_grad());
            }),
            1);
  weight.requires_grad_();
  product().sum().backward();
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::full({4, 4}, 2.0F)));
}

TEST_P(Freshness, FollowWeightsOfAnyDimension) {
  const std::vector<std::vector<std::int64_t>> shapes{
      {4}, {4, 4}, {3, 4, 4}, {2, 3, 4, 4}, {1, 2, 3, 4, 4}, {1, 1, 2, 3, 4, 4}};
  for (const auto& shape : shapes) {
    const at::Tensor weight = torch::randn(shape).requires_grad_();
    const at::Tensor in = torch::randn({2, 4});
    const auto product = [&](const at::Tensor& w) {
      const amp::Autocast scope(Policy::defaults(at::kBFloat16));
      return torch::matmul(in, w).to(at::kFloat).detach();
    };
    EXPECT_EQ(weight_casts([&] {
                product(weight);
                product(weight);
                product(weight);
              }),
              1)
        << weight.dim() << " dimensions";
    const torch::NoGradGuard no_grad;
    weight.mul_(2);
    EXPECT_TRUE(torch::allclose(product(weight), product(weight.clone()), 2e-2, 2e-2))
        << weight.dim() << " dimensions";
  }
}

// Moves a weight without a trace, as optim::SGD does.
void move_unseen(const at::Tensor& weight) {
  weight.data().add_(1);
}

// Weights that no optimizer of ours keeps fresh.
TEST_P(Freshness, AnEvaluationBetweenBackwardAndStepHidesNoStep) {
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5));
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    forward().sum().backward();
    {
      const torch::NoGradGuard no_grad;
      forward();
    }
    sgd.step();
    expect_current();
  }
}

TEST_P(Freshness, TwoStepsWithoutABackwardBetweenAreSeen) {
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  forward().sum().backward();
  sgd.step();
  expect_current();
  sgd.step();
  expect_current();
  sgd.zero_grad();
  move_unseen(linear->weight);
  expect_current();
}

TEST_P(Freshness, AnEmbeddingThatSharesTheWeightTrainsIt) {
  const at::Tensor rows = torch::tensor({0, 2, 4});
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5));
  const auto evaluate = [&] {
    const torch::NoGradGuard no_grad;
    expect_current();
  };
  evaluate();
  for (const bool cleared : {false, true}) {
    for (int i = 0; i < 3; ++i) {
      sgd.zero_grad();
      torch::embedding(linear->weight, rows).sum().backward();
      sgd.step();
      if (cleared) sgd.zero_grad();
      evaluate();
    }
  }
}

TEST_P(Freshness, AnEmbeddingIsSeenThoughItsGradientIsGone) {
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5));
  {
    const torch::NoGradGuard no_grad;
    expect_current();
  }
  torch::embedding(linear->weight, torch::tensor({0, 2, 4})).sum().backward();
  sgd.step();
  sgd.zero_grad();
  const torch::NoGradGuard no_grad;
  expect_current();
}

TEST_P(Freshness, FollowsAnAverageSwappedInAndOutUnseen) {
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5));
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    forward().sum().backward();
    sgd.step();
    sgd.zero_grad();
    const at::Tensor own = linear->weight.detach().clone();
    linear->weight.data().copy_(own * 0.5);
    {
      const torch::NoGradGuard no_grad;
      expect_current();
    }
    linear->weight.data().copy_(own);
    expect_current();
  }
}

TEST_P(Freshness, AGradientThatWasSetByHandIsASignOfTraining) {
  forward();
  linear->weight.mutable_grad() = torch::ones({5, 6});
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.5));
  sgd.step();
  expect_current();
}

TEST_P(Freshness, InsideOneScopeATrainedWeightIsCastOnce) {
  forward().sum().backward();
  EXPECT_EQ(weight_casts([&] {
              const amp::Autocast scope(Policy::defaults(at::kBFloat16));
              linear(x);
              linear(x);
              const torch::NoGradGuard no_grad;
              linear(x);
              forward();
            }),
            2);
}

TEST_P(Freshness, WhatAnOptimizerKeepsFreshIsNotCastInLaterScopes) {
  forward().sum().backward();
  const auto step = [&] {
    move_unseen(linear->weight);
    refresh_casts({linear->weight, linear->bias});
  };
  step();
  EXPECT_EQ(weight_casts([&] {
              for (int i = 0; i < 3; ++i) {
                expect_current();
                forward();
              }
            }),
            0);
  forward().sum().backward();
  step();
  EXPECT_EQ(weight_casts([&] { expect_current(); }), 0);
}

}  // namespace
}  // namespace mezzo::casting
