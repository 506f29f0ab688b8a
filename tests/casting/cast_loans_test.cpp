#include "casting/cast_loans.h"

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

constexpr at::ScalarType kLow = at::kBFloat16;

struct Loans : testing::TestWithParam<ComputeMode> {
  Loans() {
    torch::manual_seed(1);
    set_compute_mode(kLow, GetParam());
  }
  ~Loans() override { set_compute_mode(kLow, ComputeMode::kAuto); }

  /// x times the weight as a scope casts it.
  at::Tensor product(at::ScalarType low = kLow) const {
    const amp::Autocast scope(Policy::defaults(low));
    return torch::mm(x, weight.t()).to(at::kFloat);
  }
  /// The same with a fresh cast of the weight as it is now.
  at::Tensor expected() const {
    const at::Tensor product =
        torch::mm(x.to(kLow).to(at::kFloat), weight.detach().to(kLow).to(at::kFloat).t());
    return product.to(kLow).to(at::kFloat);
  }
  void expect_current() const { EXPECT_TRUE(torch::allclose(product(), expected(), 2e-2, 2e-2)); }
  std::int64_t casts_of_a_product() const {
    const std::int64_t before = cast_counts().weight_casts;
    product();
    return cast_counts().weight_casts - before;
  }
  /// Acts as an update that writes the copy too.
  void update(const CastLoan& loan) const {
    const torch::NoGradGuard no_grad;
    weight.mul_(3).add_(1);
    loan.copy.copy_(weight.to(kLow));
  }

  at::Tensor weight = torch::randn({5, 6}).requires_grad_();
  at::Tensor x = torch::randn({3, 6});
  CastLoans loans;
};

INSTANTIATE_TEST_SUITE_P(Modes, Loans,
                         testing::Values(ComputeMode::kNative, ComputeMode::kEmulated));

TEST_P(Loans, ACopyThatWasWrittenIsNotCastAgain) {
  product().sum().backward();
  for (int step = 0; step < 3; ++step) {
    loans.begin(1);
    const CastLoan* const loan = loans.lend(weight);
    ASSERT_NE(loan, nullptr);
    EXPECT_EQ(loan->rounded_to.has_value(), GetParam() == ComputeMode::kEmulated);
    EXPECT_EQ(loan->copy.scalar_type(), loan->rounded_to ? at::kFloat : kLow);
    update(*loan);
    loans.take_back();
    EXPECT_EQ(casts_of_a_product(), 0);
    expect_current();
    product().sum().backward();
  }
}

TEST_P(Loans, ACopyThatWasNotTakenBackIsCastAgain) {
  product();
  loans.begin(1);
  ASSERT_NE(loans.lend(weight), nullptr);
  EXPECT_EQ(casts_of_a_product(), 1);
  loans.begin(1);
  const CastLoan* const loan = loans.lend(weight);
  ASSERT_NE(loan, nullptr);
  update(*loan);
  loans.begin(0);
  EXPECT_EQ(casts_of_a_product(), 1);
  expect_current();
}

TEST_P(Loans, AUseMeanwhileVoidsTheLoan) {
  product();
  loans.begin(1);
  const CastLoan* const loan = loans.lend(weight);
  product();
  update(*loan);
  loans.take_back();
  EXPECT_EQ(casts_of_a_product(), 1);
  expect_current();
}

TEST_P(Loans, SoDoInvalidationAndNewMemory) {
  product();
  loans.begin(1);
  update(*loans.lend(weight));
  invalidate_casts({weight});
  loans.take_back();
  EXPECT_EQ(casts_of_a_product(), 1);
  loans.begin(1);
  update(*loans.lend(weight));
  weight.set_data(torch::randn({5, 6}));
  loans.take_back();
  EXPECT_EQ(casts_of_a_product(), 1);
  expect_current();
  loans.begin(1);
  update(*loans.lend(weight));
  forget_weights({weight});
  loans.take_back();
  EXPECT_EQ(casts_of_a_product(), 1);
  expect_current();
}

TEST_P(Loans, AGradientThatFlowsMeanwhileMakesTheCopyDoubtful) {
  const at::Tensor loss = product().sum();
  loans.begin(1);
  const CastLoan* const loan = loans.lend(weight);
  ASSERT_NE(loan, nullptr);
  loss.backward();
  update(*loan);
  loans.take_back();
  EXPECT_EQ(casts_of_a_product(), 1);
  expect_current();
}

TEST_P(Loans, NothingIsLentWhereNoCopyWasUsed) {
  loans.begin(4);
  EXPECT_EQ(loans.lend(weight), nullptr);
  product();
  ASSERT_NE(loans.lend(weight), nullptr);
  loans.take_back();
  loans.begin(1);
  EXPECT_EQ(loans.lend(weight), nullptr);
}

TEST_P(Loans, OfSeveralCopiesNoneIsLentAndAllAreRefreshed) {
  product();
  set_compute_mode(at::kHalf, GetParam());
  product(at::kHalf);
  loans.begin(1);
  EXPECT_EQ(loans.lend(weight), nullptr);
  {
    const torch::NoGradGuard no_grad;
    weight.add_(1);
  }
  refresh_casts({weight});
  EXPECT_EQ(casts_of_a_product(), 0);
  expect_current();
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
}

TEST_P(Loans, ACopyLaidOutOtherwiseIsNotLent) {
  product();
  weight.set_data(weight.detach().t().contiguous().t());
  loans.begin(1);
  EXPECT_EQ(loans.lend(weight), nullptr);
  expect_current();
}

TEST_P(Loans, ThreadsThatBorrowWhileOthersUseAgree) {
  const torch::NoGradGuard guard;
  weight.fill_(1);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    const torch::NoGradGuard no_grad;
    while (!stop) {
      const amp::Autocast scope(Policy::defaults(kLow));
      if (torch::mm(torch::ones({1, 6}), weight.t())[0][0].item<float>() != 6) ++wrong;
    }
  });
  for (int i = 0; i < 300; ++i) {
    loans.begin(1);
    loans.lend(weight);
    loans.take_back();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mezzo::casting
