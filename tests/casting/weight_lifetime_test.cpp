// The objects that the copies of weights keep alive, and for how long.
#include <algorithm>
#include <vector>

#include "casting/shadows.h"

namespace mezzo::casting {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// How many of the inputs are still held.
std::size_t alive(const std::vector<WeakTensor>& inputs) {
  return static_cast<std::size_t>(
      std::ranges::count_if(inputs, [](const WeakTensor& input) { return !input.expired(); }));
}

struct Lifetime : Shadows {
  // Weights that stay, each used once.
  void use_many_weights(int count) {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    for (int i = 0; i < count; ++i) {
      weights.push_back(torch::randn({2, 2}).requires_grad_());
      torch::mm(torch::ones({1, 2}), weights.back());
    }
  }
  // A fresh input that wants a gradient, as in a gradient penalty.
  void penalise() {
    const at::Tensor input = torch::randn({3, 6}).requires_grad_();
    inputs.emplace_back(input.getIntrusivePtr());
    const at::Tensor y = torch::mm(input, linear->weight.t());
    torch::autograd::grad({y.to(at::kFloat).sum()}, {input});
  }

  std::vector<at::Tensor> weights;
  std::vector<WeakTensor> inputs;
};

INSTANTIATE_TEST_SUITE_P(Modes, Lifetime,
                         testing::Values(ComputeMode::kNative, ComputeMode::kEmulated));

TEST_P(Lifetime, InputsThatWantAGradientDieWithTheirIterationBesideManyWeights) {
  use_many_weights(800);
  for (int i = 0; i < 200; ++i) {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    penalise();
    EXPECT_LE(alive(inputs), 4U);
  }
}

TEST_P(Lifetime, InputsThatLiveThroughSeveralScopesDieSoonAfter) {
  use_many_weights(800);
  const Policy policy = Policy::defaults(at::kBFloat16);
  for (int i = 0; i < 50; ++i) {
    const at::Tensor input = torch::randn({3, 6}).requires_grad_();
    inputs.emplace_back(input.getIntrusivePtr());
    for (int k = 0; k < 12; ++k) {
      const amp::Autocast scope(policy);
      torch::mm(input, linear->weight.t());
    }
    EXPECT_LE(alive(inputs), 4U);
  }
}

TEST_P(Lifetime, InputsDieWithinOneLongScopeAsWell) {
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  for (int i = 0; i < 800; ++i) {
    weights.push_back(torch::randn({2, 2}).requires_grad_());
    torch::mm(torch::ones({1, 2}), weights.back());
  }
  for (int i = 0; i < 200; ++i) {
    penalise();
    EXPECT_LE(alive(inputs), 4U);
  }
}

TEST_P(Lifetime, ModelsDieWithinOneLongScope) {
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  for (int i = 0; i < 200; ++i) {
    torch::nn::Linear model(6, 5);
    inputs.emplace_back(model->weight.getIntrusivePtr());
    model(x).to(at::kFloat).sum().backward();
    EXPECT_LE(alive(inputs), 8U);
  }
}

TEST_P(Lifetime, AModelThatLivedLongDiesSoon) {
  // Copies that other tests left are gone, too.
  for (int i = 0; i < 1000; ++i) forward();
  const WeakTensor weight(linear->weight.getIntrusivePtr());
  linear = torch::nn::Linear(1, 1);
  for (int i = 0; i < 64; ++i) const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_TRUE(weight.expired());
}

}  // namespace
}  // namespace mezzo::casting
