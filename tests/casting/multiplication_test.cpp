// Products that sum over one element: they run in the widest type of their operands.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "casting/multiplication.h"
#include "casting/scope.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {
namespace {

struct MultiplicationSetting {
  at::ScalarType low;
  ComputeMode computed;
};

class MultiplicationTest : public testing::TestWithParam<MultiplicationSetting> {
 protected:
  void SetUp() override {
    torch::manual_seed(5);
    set_compute_mode(low(), GetParam().computed);
  }
  void TearDown() override { set_compute_mode(low(), ComputeMode::kAuto); }
  static at::ScalarType low() { return GetParam().low; }
};

INSTANTIATE_TEST_SUITE_P(Casting, MultiplicationTest,
                         testing::Values(MultiplicationSetting{at::kHalf, ComputeMode::kNative},
                                         MultiplicationSetting{at::kHalf, ComputeMode::kEmulated},
                                         MultiplicationSetting{at::kBFloat16, ComputeMode::kNative},
                                         MultiplicationSetting{at::kBFloat16,
                                                               ComputeMode::kEmulated}));

using BinaryCall = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

/// Calls of a column `a` of 5 and a row `b` of 7.
const std::vector<std::pair<const char*, BinaryCall>>& multiplications() {
  using T = const at::Tensor&;
  static const std::vector<std::pair<const char*, BinaryCall>> all{
      {"einsum i,j->ij",
       [](T a, T b) {
         return torch::einsum("i,j->ij", {a, b});
       }},
      {"einsum i,j",
       [](T a, T b) {
         return torch::einsum("i,j", {a, b});
       }},
      {"einsum with an inner 1",
       [](T a, T b) {
         return torch::einsum("ik, kj -> ij", {a.unsqueeze(1), b.unsqueeze(0)});
       }},
      {"einsum with dots",
       [](T a, T b) {
         return torch::einsum("...k,kj->...j", {a.view({5, 1, 1}), b.unsqueeze(0)});
       }},
      {"matmul", [](T a, T b) { return torch::matmul(a.unsqueeze(1), b.unsqueeze(0)); }},
      {"matmul of batches",
       [](T a, T b) {
         return torch::matmul(a.view({1, 5, 1}), b.view({1, 1, 7}));
       }},
      {"mm", [](T a, T b) { return a.unsqueeze(1).mm(b.unsqueeze(0)); }},
      {"mv", [](T a, T b) { return a.unsqueeze(1).mv(b.narrow(0, 0, 1)); }},
      {"bmm",
       [](T a, T b) {
         return a.view({1, 5, 1}).bmm(b.view({1, 1, 7}));
       }},
      {"addmm",
       [](T a, T b) {
         return torch::addmm(torch::zeros({5, 7}), a.unsqueeze(1), b.unsqueeze(0));
       }},
      {"baddbmm",
       [](T a, T b) {
         return torch::baddbmm(torch::zeros({1, 5, 7}), a.view({1, 5, 1}), b.view({1, 1, 7}));
       }},
      {"addbmm",
       [](T a, T b) {
         return torch::addbmm(torch::zeros({5, 7}), a.view({1, 5, 1}), b.view({1, 1, 7}));
       }},
      {"linear", [](T a, T b) { return torch::linear(a.unsqueeze(1), b.unsqueeze(1)); }},
      {"tensordot",
       [](T a, T b) { return torch::tensordot(a.unsqueeze(1), b.unsqueeze(0), {1}, {0}); }},
      {"outer", [](T a, T b) { return torch::outer(a, b); }},
      {"ger", [](T a, T b) { return torch::ger(a, b); }},
      {"linalg_matmul",
       [](T a, T b) { return torch::linalg_matmul(a.unsqueeze(1), b.unsqueeze(0)); }},
  };
  return all;
}

TEST_P(MultiplicationTest, FloatOperandsGiveFloatsDigits) {
  const at::Tensor a = torch::arange(5).to(at::kFloat) + 2043;
  const at::Tensor b = torch::rand({7}) + 0.1;
  const Scope scope(Policy::defaults(low()));
  for (const auto& [name, call] : multiplications()) {
    const at::Tensor x = a.clone().requires_grad_();
    const at::Tensor y = b.clone().requires_grad_();
    const at::Tensor got = call(x, y);
    EXPECT_EQ(got.scalar_type(), at::kFloat) << name;
    const at::Tensor wide_x = a.to(at::kDouble).requires_grad_();
    const at::Tensor wide_y = b.to(at::kDouble).requires_grad_();
    if (std::string(name).find("add") == std::string::npos) {
      const at::Tensor expected = call(wide_x, wide_y);
      EXPECT_TRUE(torch::allclose(got.to(at::kDouble), expected, 1e-6)) << name;
      got.sum().backward();
      expected.sum().backward();
      EXPECT_TRUE(torch::allclose(x.grad().to(at::kDouble), wide_x.grad(), 1e-5)) << name;
      EXPECT_TRUE(torch::allclose(y.grad().to(at::kDouble), wide_y.grad(), 1e-5)) << name;
    } else {
      const at::Tensor expected = torch::outer(wide_x, wide_y).reshape_as(got);
      EXPECT_TRUE(torch::allclose(got.to(at::kDouble), expected, 1e-6)) << name;
    }
  }
}

TEST_P(MultiplicationTest, LowOperandsStayLowAndMixedOnesAreFloat) {
  const at::Tensor a = torch::rand({5});
  const at::Tensor b = torch::rand({7});
  const Scope scope(Policy::defaults(low()));
  for (const auto& [name, call] : multiplications()) {
    if (std::string(name).find("add") != std::string::npos) continue;  // their zeros are float
    EXPECT_EQ(call(a.to(low()), b.to(low())).scalar_type(), low()) << name;
    EXPECT_EQ(call(a.to(low()), b).scalar_type(), at::kFloat) << name;
    EXPECT_EQ(call(a, b.to(low())).scalar_type(), at::kFloat) << name;
  }
}

TEST_P(MultiplicationTest, ProductsThatSumAreLowAsBefore) {
  const at::Tensor a = torch::rand({5, 2});
  const at::Tensor b = torch::rand({2, 7});
  const Scope scope(Policy::defaults(low()));
  using Sum = std::function<at::Tensor()>;
  const std::vector<std::pair<const char*, Sum>> sums{
      {"mm", [&] { return a.mm(b); }},
      {"matmul", [&] { return torch::matmul(a, b); }},
      {"einsum",
       [&] {
         return torch::einsum("ik,kj->ij", {a, b});
       }},
      {"addmm",
       [&] {
         return torch::addmm(torch::zeros({5, 7}), a, b);
       }},
      {"linear", [&] { return torch::linear(a, b.t()); }},
      {"addbmm",
       [&] {
         return torch::addbmm(torch::zeros({5, 7}), torch::rand({2, 5, 1}), torch::rand({2, 1, 7}));
       }},
  };
  for (const auto& [name, sum] : sums) {
    EXPECT_EQ(sum().scalar_type(), low()) << name;
  }
}

TEST_P(MultiplicationTest, AnglesOfPositionsHaveTheirCosines) {
  const at::Tensor frequencies = torch::pow(10000.0, -torch::arange(0, 64, 2).to(at::kFloat) / 64);
  const at::Tensor positions = torch::arange(2048).to(at::kFloat);
  const at::Tensor expected =
      torch::cos(torch::outer(positions.to(at::kDouble), frequencies.to(at::kDouble)));
  const Scope scope(Policy::defaults(low()));
  const at::Tensor angles = torch::einsum("i,j->ij", {positions, frequencies});
  EXPECT_LT((torch::cos(angles) - expected).abs().max().item<double>(), 1e-3);
}

TEST(EinsumMultiplication, IsToldByTheEquationAndTheSizes) {
  const at::Tensor column = torch::ones({5, 1});
  const at::Tensor row = torch::ones({1, 7});
  const at::Tensor square = torch::ones({5, 5});
  EXPECT_TRUE(is_einsum_multiplication("ik,kj->ij", {column, row}));
  EXPECT_TRUE(is_einsum_multiplication("ik,kj", {column, row}));
  EXPECT_TRUE(is_einsum_multiplication("ij,ij->ij", {square, square}));
  EXPECT_TRUE(is_einsum_multiplication("ij,ik->ijk", {square, column}));
  EXPECT_TRUE(is_einsum_multiplication("...k,k...->...", {column, torch::ones({1})}));
  EXPECT_FALSE(is_einsum_multiplication("ij,ij", {square, square}));
  EXPECT_FALSE(is_einsum_multiplication("ij,jk->ik", {square, square}));
  EXPECT_FALSE(is_einsum_multiplication("ij,ij->i", {square, square}));
  EXPECT_FALSE(is_einsum_multiplication("ij->i", {square}));
  EXPECT_FALSE(is_einsum_multiplication("ij,jk->ik", {square}));
  EXPECT_FALSE(is_einsum_multiplication("ijk,jk->ik", {square, square}));
  EXPECT_FALSE(is_einsum_multiplication("i1,1j->ij", {column, row}));
  EXPECT_FALSE(is_einsum_multiplication("...,...->", {square, square}));
}

}  // namespace
}  // namespace mezzo::casting
