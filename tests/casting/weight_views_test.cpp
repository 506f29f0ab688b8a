// Views of a weight in operators of a scope: the gradient goes the way that the program gave it,
// and the values are those of the view.
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_unpack_dual.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "casting/shadows.h"

namespace mezzo::casting {
namespace {

struct Reverse : torch::autograd::Function<Reverse> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.view_as(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               const torch::autograd::tensor_list& gradients) {
    return {-gradients[0]};
  }
};

struct CountCalls : torch::autograd::FunctionPostHook {
  explicit CountCalls(int& count) : calls(count) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++calls;
    return outputs;
  }
  int& calls;
};

struct Views : testing::TestWithParam<ComputeMode> {
  Views() {
    torch::manual_seed(1);
    set_compute_mode(at::kBFloat16, GetParam());
  }
  ~Views() override { set_compute_mode(at::kBFloat16, ComputeMode::kAuto); }

  // The function's gradient of the weight, under a scope and in float.
  template <typename F>
  void expect_same_gradient(F function) {
    const auto gradient = [&] {
      w.mutable_grad().reset();
      function().to(at::kFloat).sum().backward();
      return w.grad().defined() ? w.grad().clone() : at::Tensor();
    };
    const at::Tensor exact = gradient();
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    // The second time the thread knows the weight.
    for (int i = 0; i < 2; ++i) {
      const at::Tensor ours = gradient();
      ASSERT_TRUE(ours.defined());
      EXPECT_TRUE(torch::allclose(ours, exact, 3e-2, 3e-2)) << ours << exact;
    }
  }

  // The function's values, under a scope and in float.
  template <typename F>
  void expect_same_values(F function) {
    const at::Tensor exact = function();
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(torch::allclose(function().to(at::kFloat), exact, 3e-2, 3e-2));
  }

  // The thread knows the weight, straight and transposed.
  void know_weight() {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    torch::mm(x, w.t());
    torch::mm(torch::ones({1, 4}), w);
    const torch::NoGradGuard no_grad;
    torch::mm(x, w.t());
    torch::mm(torch::ones({1, 4}), w);
  }

  at::Tensor product(const at::Tensor& other) const {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return torch::mm(x, other);
  }

  at::Tensor w = torch::randn({4, 3}).requires_grad_();
  at::Tensor b = torch::randn({4});
  at::Tensor x = torch::randn({2, 3});
};

INSTANTIATE_TEST_SUITE_P(Modes, Views,
                         testing::Values(ComputeMode::kNative, ComputeMode::kEmulated));

TEST_P(Views, AHookOnAViewThatIsTransposedAfterwardsActs) {
  expect_same_gradient([&] {
    const at::Tensor view = w.view({4, 3});
    view.register_hook([](const at::Tensor& gradient) { return gradient * 10; });
    return torch::nn::functional::linear(x, view, b);
  });
}

TEST_P(Views, AHookOnATransposeActs) {
  expect_same_gradient([&] {
    const at::Tensor view = w.t();
    view.register_hook([](const at::Tensor& gradient) { return gradient * 10; });
    return torch::mm(x, view);
  });
}

TEST_P(Views, AHookOnAnyOtherViewActs) {
  expect_same_gradient([&] {
    const at::Tensor view = w.narrow(0, 1, 2);
    view.register_hook([](const at::Tensor& gradient) { return gradient * 10; });
    return torch::mm(x, view.t());
  });
}

TEST_P(Views, AHookOnTheNodeOfATransposeActs) {
  know_weight();
  const at::Tensor view = w.t();
  int calls = 0;
  view.grad_fn()->add_post_hook(std::make_unique<CountCalls>(calls));
  product(view).sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST_P(Views, ATransposeThatRetainsItsGradientHasOne) {
  know_weight();
  const at::Tensor view = w.t();
  view.retain_grad();
  product(view).sum().backward();
  ASSERT_TRUE(view.grad().defined());
  EXPECT_TRUE(torch::equal(view.grad().t(), w.grad()));
}

TEST_P(Views, AFunctionOfTheProgramThatReturnsAViewRunsBackward) {
  expect_same_gradient([&] { return torch::nn::functional::linear(x, Reverse::apply(w), b); });
  expect_same_gradient([&] { return torch::mm(x, Reverse::apply(w).t()); });
  expect_same_gradient([&] { return torch::mm(x, Reverse::apply(w.t())); });
  expect_same_gradient([&] { return torch::mm(torch::ones({2, 4}), Reverse::apply(w)); });
}

TEST_P(Views, TheGradientOfAViewMayBeAskedFor) {
  know_weight();
  const at::Tensor view = w.narrow(0, 1, 2);
  const at::Tensor loss = product(view.t()).to(at::kFloat).sum();
  const at::Tensor gradient = torch::autograd::grad({loss}, {view})[0];
  EXPECT_TRUE(torch::allclose(gradient, x.sum(0).expand({2, 3}), 2e-2, 2e-2));
}

// The plain transpose that nobody listens to is no part of the graph: a documented exception.
TEST_P(Views, TheGradientOfATransposeMayBeAskedForIfItIsSaidBefore) {
  know_weight();
  for (const bool retains : {true, false}) {
    const at::Tensor view = retains ? w.t() : w.t().view_as(w.t());
    if (retains) view.retain_grad();
    const at::Tensor loss = product(view).to(at::kFloat).sum();
    const at::Tensor gradient = torch::autograd::grad({loss}, {view})[0];
    EXPECT_TRUE(torch::allclose(gradient.t(), x.sum(0).expand({4, 3}), 2e-2, 2e-2));
  }
}

TEST_P(Views, EveryWayToTransposeGivesTheSameGradient) {
  expect_same_gradient([&] { return torch::mm(x, w.t()); });
  expect_same_gradient([&] { return torch::mm(x, w.transpose(0, 1)); });
  expect_same_gradient([&] { return torch::mm(x, w.transpose(-1, -2)); });
  expect_same_gradient([&] { return torch::mm(x, w.permute({1, 0})); });
  expect_same_gradient([&] { return torch::mm(x, w.mT()); });
  expect_same_gradient([&] { return torch::mm(x, w.t().t().t()); });
  expect_same_gradient([&] { return torch::mm(x, w.as_strided({3, 4}, {1, 3})); });
}

TEST_P(Views, ATransposeTakenBeforeAnUpdateGivesItsGradientAfterwards) {
  const at::Tensor view = w.t();
  product(view).sum().backward();
  {
    const torch::NoGradGuard no_grad;
    w.mul_(2);
  }
  w.mutable_grad().reset();
  product(view).to(at::kFloat).sum().backward();
  EXPECT_TRUE(torch::allclose(w.grad(), x.sum(0).expand({4, 3}), 2e-2, 2e-2));
}

TEST_P(Views, ATransposeOfAWeightIsNoCastOfItsOwn) {
  know_weight();
  EXPECT_EQ(weight_casts([&] {
              product(w.t());
              product(w.transpose(0, 1));
              product(w.mT());
            }),
            0);
}

TEST_P(Views, ATrainableViewOfAFrozenWeightHasItsGradient) {
  w.set_requires_grad(false);
  remember_weights({w});
  know_weight();
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  const at::Tensor rows = w.narrow(0, 0, 2).requires_grad_();
  const at::Tensor y = torch::nn::functional::linear(x, rows);
  ASSERT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(torch::allclose(rows.grad(), x.sum(0).expand({2, 3}), 2e-2, 2e-2));
  const at::Tensor transposed = w.t().requires_grad_();
  const at::Tensor z = torch::mm(x, transposed);
  ASSERT_TRUE(z.requires_grad());
  z.sum().backward();
  EXPECT_TRUE(transposed.grad().defined());
}

TEST_P(Views, AViewKeepsTheMemoryThatItWasTakenOf) {
  know_weight();
  const at::Tensor transposed = w.t();
  const at::Tensor rows = w.narrow(0, 1, 2);
  w.set_data(torch::zeros({4, 3}));
  know_weight();
  const torch::NoGradGuard no_grad;
  expect_same_values([&] { return torch::mm(x, transposed); });
  expect_same_values([&] { return torch::mm(x, rows.t()); });
}

TEST_P(Views, ANegativeViewKeepsItsSign) {
  know_weight();
  const torch::NoGradGuard no_grad;
  expect_same_values([&] { return torch::mm(x, at::_neg_view(w).t()); });
  expect_same_values([&] { return torch::mm(x, at::_neg_view(w.t())); });
  expect_same_values([&] { return torch::mm(torch::ones({1, 4}), at::_neg_view(w)); });
}

TEST_P(Views, ANegativeViewKeepsItsGradient) {
  expect_same_gradient([&] { return torch::mm(x, at::_neg_view(w).t()); });
  expect_same_gradient([&] { return torch::mm(torch::ones({1, 4}), at::_neg_view(w)); });
}

TEST_P(Views, ATangentOfAWeightIsCarriedOn) {
  know_weight();
  const std::uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  for (const bool recorded : {true, false}) {
    const torch::AutoGradMode mode(recorded);
    const at::Tensor dual = at::_make_dual(w, torch::ones({4, 3}), static_cast<int64_t>(level));
    for (const at::Tensor& other : {dual.t(), dual.narrow(0, 0, 2).t()}) {
      const at::Tensor tangent =
          std::get<1>(at::_unpack_dual(product(other), static_cast<int64_t>(level)));
      ASSERT_TRUE(tangent.defined());
      EXPECT_TRUE(torch::allclose(tangent.to(at::kFloat), x.sum(1, true).expand({2, other.size(1)}),
                                  3e-2, 3e-2));
    }
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

}  // namespace
}  // namespace mezzo::casting
