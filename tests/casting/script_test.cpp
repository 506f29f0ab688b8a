// TorchScript functions called inside a scope.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "mezzo/autocast.h"

namespace mezzo::amp {
namespace {

constexpr const char* kSource = R"(
def net(x, w1, w2):
    return torch.relu(x @ w1) @ w2
)";

struct Script : testing::TestWithParam<at::ScalarType> {
  Script() { torch::manual_seed(5); }

  at::Tensor scripted() {
    const Autocast scope(Policy::defaults(GetParam()));
    return unit->run_method("net", x, w1, w2).toTensor();
  }
  at::Tensor eager() {
    const Autocast scope(Policy::defaults(GetParam()));
    return torch::relu(x.matmul(w1)).matmul(w2);
  }
  // The gradients of one training iteration.
  template <typename Forward>
  std::pair<at::Tensor, at::Tensor> gradients(Forward forward) {
    w1.mutable_grad().reset();
    w2.mutable_grad().reset();
    forward().to(at::kFloat).square().sum().backward();
    return {w1.grad().clone(), w2.grad().clone()};
  }
  void expect_gradients(const std::pair<at::Tensor, at::Tensor>& expected, int iterations) {
    for (int i = 0; i < iterations; ++i) {
      const auto got = gradients([this] { return scripted(); });
      EXPECT_TRUE(torch::equal(got.first, expected.first)) << "iteration " << i;
      EXPECT_TRUE(torch::equal(got.second, expected.second)) << "iteration " << i;
    }
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit = torch::jit::compile(kSource);
  at::Tensor x = torch::randn({6, 5});
  at::Tensor w1 = torch::randn({5, 7}).requires_grad_();
  at::Tensor w2 = torch::randn({7, 3}).requires_grad_();
};

INSTANTIATE_TEST_SUITE_P(Types, Script, testing::Values(at::kHalf, at::kBFloat16));

TEST_P(Script, RunsInTheLowTypeInInference) {
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(scripted().scalar_type(), GetParam());
    EXPECT_TRUE(torch::equal(scripted(), eager()));
  }
}

TEST_P(Script, TrainsWithTheGradientsOfEagerCode) {
  const auto expected = gradients([this] { return eager(); });
  expect_gradients(expected, 4);
}

TEST_P(Script, TrainsAfterAnEvaluationInAScope) {
  const auto expected = gradients([this] { return eager(); });
  {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) scripted();
  }
  expect_gradients(expected, 3);
}

TEST_P(Script, IsOptimizedAgainOutside) {
  ASSERT_TRUE(torch::jit::getGraphExecutorOptimize());
  {
    const Autocast outer(Policy::defaults(GetParam()));
    const Autocast inner(Policy::defaults(GetParam()));
    EXPECT_FALSE(torch::jit::getGraphExecutorOptimize());
  }
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST_P(Script, TrainsAfterABareRunOnceItsPlanIsFlushed) {
  for (int i = 0; i < 4; ++i)
    gradients([this] { return unit->run_method("net", x, w1, w2).toTensor(); });
  torch::jit::toGraphFunction(unit->get_function("net"))
      .get_executor()
      .debugFlushCompilationCache();
  expect_gradients(gradients([this] { return eager(); }), 3);
}

}  // namespace
}  // namespace mezzo::amp
