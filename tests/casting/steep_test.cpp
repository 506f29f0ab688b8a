// Operators whose derivative leaves 16 bits where their value does not run in float: values and
// gradients are those of float, rounded.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "casting/scope.h"
#include "mezzo/containers.h"

namespace mezzo::casting {
namespace {

namespace F = torch::nn::functional;

struct Case {
  std::string name;
  std::vector<double> sizes_of_values;  // of the argument's values, about
  std::function<at::Tensor(const at::Tensor&)> call;
  double gradient = 1;  // that comes in
};

const std::vector<double> kPlain{0.01, 0.5, 3, 20};

std::vector<Case> powers() {
  return {
      {"vector_norm of order 3", kPlain, [](auto& x) { return at::linalg_vector_norm(x, 3); }},
      {"vector_norm of order 4", {0.05, 3}, [](auto& x) { return at::linalg_vector_norm(x, 4); }},
      {"norm of order 3", kPlain, [](auto& x) { return x.norm(3); }},
      {"norm of order 4", {0.05, 3}, [](auto& x) { return x.norm(4); }},
      {"norm of order 3 of rows", kPlain, [](auto& x) { return x.norm(3, {1}, true); }},
      {"norm of order 3, asked for in float", kPlain,
       [](auto& x) {
         const bool is_reference = x.scalar_type() == at::kDouble;
         return x.norm(3, {1}, true, is_reference ? at::kDouble : at::kFloat);
       }},
      {"normalize by order 3", kPlain,
       [](auto& x) { return F::normalize(x, F::NormalizeFuncOptions().p(3)); }},
      {"renorm of order 3", kPlain, [](auto& x) { return x.renorm(3, 0, 0.5); }},
      {"LPPool of order 3",
       {0.01, 0.5, 20, 300},
       [](auto& x) { return F::lp_pool1d(x.unsqueeze(0), F::LPPool1dFuncOptions(3, 2)); }},
      {"LPPool of order 4",
       {0.05, 0.5, 20, 300},
       [](auto& x) { return F::lp_pool1d(x.unsqueeze(0), F::LPPool1dFuncOptions(4, 2)); }},
      {"pow 1.5", kPlain, [](auto& x) { return x.pow(1.5); }},
      {"pow -2", {0.01, 3}, [](auto& x) { return x.pow(-2); }, 1e-3},
      {"prod", {0.6, 1.2}, [](auto& x) { return x.prod(); }},
      {"prod of rows", {0.1, 0.5, 3, 20}, [](auto& x) { return x.slice(1, 0, 3).prod(1); }},
      {"cumprod", {0.5, 1.2}, [](auto& x) { return x.cumprod(1); }},
      {"logcumsumexp", {0.5, 3}, [](auto& x) { return x.logcumsumexp(1); }},
      {"dist of order 3", kPlain, [](auto& x) { return torch::dist(x, x.detach() * 0.5, 3); }},
      {"cdist of order 3", kPlain,
       [](auto& x) { return torch::cdist(x, x.detach().roll(1, 0) * 0.5, 3); }},
  };
}

std::vector<Case> squares_inside() {
  return {
      {"reciprocal", {0.001, 3}, [](auto& x) { return x.reciprocal(); }, 1e-3},
      {"a quotient", {0.001, 3}, [](auto& x) { return torch::ones_like(x) / x; }, 1e-3},
      {"rsqrt", {0.0005, 3}, [](auto& x) { return x.rsqrt(); }, 1e-3},
      {"addcdiv",
       {0.002, 3},
       [](auto& x) { return torch::addcdiv(x.detach(), torch::ones_like(x), x); },
       1e-3},
      {"atan", {3, 300}, [](auto& x) { return x.atan(); }, 64},
      {"atan2", {3, 300}, [](auto& x) { return torch::atan2(x, torch::ones_like(x)); }, 64},
      {"asinh", {3, 300}, [](auto& x) { return x.asinh(); }},
      {"acosh", {3, 300}, [](auto& x) { return x.acosh(); }},
      {"std", {0.02, 3}, [](auto& x) { return x.std(1); }},
      {"var", {0.2, 3}, [](auto& x) { return x.var(1); }},
  };
}

struct Setting {
  at::ScalarType low;
  Mode mode;
};

class Steep : public testing::TestWithParam<Setting> {
 protected:
  static std::tuple<at::Tensor, at::Tensor> run(const Case& each, const at::Tensor& values,
                                                at::ScalarType type) {
    const at::Tensor leaf = values.detach().to(type).clone().requires_grad_();
    at::Tensor result;
    if (type == at::kDouble) {
      result = each.call(leaf);
    } else {
      const Scope scope(Policy::defaults(type), GetParam().mode);
      result = amp::TensorCast{at::kFloat, false}(each.call(leaf));
    }
    result.backward(torch::full_like(result, each.gradient));
    return {result.to(at::kDouble), leaf.grad().to(at::kDouble)};
  }

  static void expect_float(const std::vector<Case>& cases) {
    const at::ScalarType low = GetParam().low;
    const double tolerance = low == at::kHalf ? 0.01 : 0.04;
    for (const Case& each : cases) {
      for (const double size : each.sizes_of_values) {
        torch::manual_seed(1);
        const at::Tensor values = ((torch::rand({3, 6}) * 0.5 + 0.75) * size).to(low);
        const auto [result, gradient] = run(each, values, low);
        const auto [expected, expected_gradient] = run(each, values, at::kDouble);
        const auto is_close = [&](const at::Tensor& a, const at::Tensor& b) {
          const double largest = b.abs().max().item<double>();
          return at::allclose(a, b, tolerance, tolerance * largest);
        };
        EXPECT_TRUE(is_close(result, expected)) << each.name << " of " << size << ":\n"
                                                << result << "\nexpected\n"
                                                << expected;
        EXPECT_TRUE(is_close(gradient, expected_gradient))
            << each.name << " of " << size << ", gradient:\n"
            << gradient << "\nexpected\n"
            << expected_gradient;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Casting, Steep,
                         testing::Values(Setting{at::kHalf, Mode::kOperators},
                                         Setting{at::kHalf, Mode::kWholeModel},
                                         Setting{at::kBFloat16, Mode::kOperators},
                                         Setting{at::kBFloat16, Mode::kWholeModel}));

TEST_P(Steep, PowersHaveTheGradientsOfFloat) {
  expect_float(powers());
}

TEST_P(Steep, SquaresInsideADerivativeStayInRange) {
  expect_float(squares_inside());
}

TEST_P(Steep, ATypeThatTheCallerNamesIsRespected) {
  const Scope scope(Policy::defaults(GetParam().low), GetParam().mode);
  const at::Tensor x = torch::ones({3, 4}, GetParam().low).requires_grad_();
  const at::ScalarType low = GetParam().low;
  EXPECT_EQ(at::linalg_vector_norm(x, 3, at::OptionalIntArrayRef(), false, low).scalar_type(), low);
  EXPECT_EQ(
      at::linalg_vector_norm(x, 3, at::OptionalIntArrayRef(), false, at::kFloat).scalar_type(),
      at::kFloat);
  EXPECT_EQ(x.prod(low).scalar_type(), low);
  EXPECT_EQ(x.prod(at::kFloat).scalar_type(), at::kFloat);
  EXPECT_EQ(x.cumprod(1, low).scalar_type(), low);
}

}  // namespace
}  // namespace mezzo::casting
