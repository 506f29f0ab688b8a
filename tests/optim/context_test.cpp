#include "optim/step_context.h"

#include <map>

#include "mezzo/error.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

struct Lent {
  at::Tensor source_grad = {};
  at::Tensor copy = {};
  std::optional<at::ScalarType> rounded_to = {};
};

class Lender final : public StepContext {
 public:
  std::map<void*, Lent> lent;
  std::vector<bool> steps;

  LowCopy low_copy(const at::Tensor& parameter) override {
    const auto found = lent.find(parameter.unsafeGetTensorImpl());
    if (found == lent.end()) return {};
    const Lent& own = found->second;
    return {own.source_grad.defined() ? &own.source_grad : nullptr,
            own.copy.defined() ? &own.copy : nullptr, own.rounded_to};
  }
  void stepped(bool applied) override { steps.push_back(applied); }
};

struct LowCase {
  const char* name;
  at::ScalarType grad, copy;
  std::optional<at::ScalarType> rounded_to;
};
const LowCase kCases[] = {{"HalfGradientsAndCopies", at::kHalf, at::kHalf, {}},
                          {"BFloat16GradientsAndCopies", at::kBFloat16, at::kBFloat16, {}},
                          {"FloatGradientsAndHalfCopies", at::kFloat, at::kHalf, {}},
                          {"CopiesRoundedToHalf", at::kFloat, at::kFloat, at::kHalf},
                          {"CopiesRoundedToBFloat16", at::kBFloat16, at::kFloat, at::kBFloat16}};

class LowPrecision : public testing::TestWithParam<LowCase> {};
INSTANTIATE_TEST_SUITE_P(Optim, LowPrecision, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(LowPrecision, IsReadAndWrittenInTheSamePassFor100Steps) {
  const LowCase& c = GetParam();
  const auto masters = make_parameters();
  const auto others = make_parameters();
  FusedAdam fused(masters, FusedAdamOptions(0.01));
  FusedAdam reference(others, FusedAdamOptions(0.01));
  const auto lender = std::make_shared<Lender>();
  set_step_context(fused, lender);
  const at::ScalarType low = c.rounded_to.value_or(c.copy);
  for (int step = 0; step < 100; ++step) {
    set_gradients(others, step);
    for (std::size_t i = 0; i < masters.size(); ++i) {
      const at::Tensor grad = others[i].grad().mul(256).to(c.grad);
      Lent& lent = lender->lent[masters[i].unsafeGetTensorImpl()];
      lent.source_grad = grad;
      if (step == 0) lent.copy = torch::empty_like(masters[i].detach(), c.copy);
      lent.rounded_to = c.rounded_to;
      others[i].mutable_grad() = grad.to(at::kFloat) / 256;
    }
    at::Tensor found = torch::zeros({1});
    step_checked(fused, found, torch::full({1}, 1.0 / 256));
    reference.step();
    for (std::size_t i = 0; i < masters.size(); ++i) {
      EXPECT_FALSE(masters[i].grad().defined());
      const Lent& lent = lender->lent[masters[i].unsafeGetTensorImpl()];
      EXPECT_TRUE(
          torch::equal(lent.copy.to(at::kFloat), masters[i].detach().to(low).to(at::kFloat)));
      EXPECT_GT(lent.copy._version(), step);
    }
  }
  EXPECT_TRUE(identical(masters, others));
  EXPECT_EQ(lender->steps, std::vector<bool>(100, true));
}

TEST(StepContext, LearnsOfASkipAndItsCopiesStay) {
  const auto masters = make_parameters();
  FusedSGD sgd(masters, FusedSGDOptions(0.1));
  const auto lender = std::make_shared<Lender>();
  set_step_context(sgd, lender);
  set_gradients(masters, 0);
  for (const at::Tensor& param : masters) {
    lender->lent[param.unsafeGetTensorImpl()].copy = torch::full_like(param.detach(), 7, at::kHalf);
  }
  sgd.step_unless(torch::ones({1}));
  for (const auto& [key, lent] : lender->lent) {
    EXPECT_TRUE((lent.copy == 7).all().item<bool>());
  }
  EXPECT_EQ(lender->steps, std::vector<bool>{false});
  set_step_context(sgd, nullptr);
  sgd.step();
  EXPECT_EQ(lender->steps.size(), 1);
}

TEST(StepContext, ClippingChecksOnTheWay) {
  const auto params = make_parameters();
  FusedAdam adam(params, FusedAdamOptions(0.01).max_grad_norm(1));
  set_gradients(params, 0);
  params[5].mutable_grad().index_put_({19999}, INFINITY);
  const auto before = values(params);
  at::Tensor found = torch::zeros({1});
  step_checked(adam, found, torch::ones({1}));
  EXPECT_EQ(found.item<float>(), 1);
  EXPECT_TRUE(identical(params, before));
}

TEST(StepContext, LongListsAreSteppedLikeShortOnes) {
  // More parameters than are looked at together, every seventh without a gradient.
  constexpr int kParameters = 150;
  torch::manual_seed(1);
  std::vector<at::Tensor> params;
  for (int i = 0; i < kParameters; ++i) params.push_back(torch::randn({i % 9, 3}).requires_grad_());
  std::vector<at::Tensor> others;
  for (const at::Tensor& param : params) others.push_back(param.detach().clone().requires_grad_());
  FusedAdam together(params, FusedAdamOptions(0.01));
  const auto lender = std::make_shared<Lender>();
  std::vector<std::int64_t> versions;
  for (const at::Tensor& param : params) {
    at::Tensor& copy = lender->lent[param.unsafeGetTensorImpl()].copy;
    copy = torch::zeros_like(param.detach(), at::kHalf);
    versions.push_back(copy._version());
  }
  set_step_context(together, lender);
  std::vector<std::unique_ptr<FusedAdam>> alone;
  for (const at::Tensor& other : others) {
    alone.push_back(
        std::make_unique<FusedAdam>(std::vector<at::Tensor>{other}, FusedAdamOptions(0.01)));
  }
  for (int step = 0; step < 3; ++step) {
    set_gradients(others, step);
    for (int i = 0; i < kParameters; ++i) {
      if (i % 7 == step) others[i].mutable_grad().reset();
      params[i].mutable_grad() = others[i].grad();
      alone[i]->step();
    }
    together.step();
    EXPECT_TRUE(identical(params, others));
  }
  for (int i = 0; i < kParameters; ++i) {
    const at::Tensor& copy = lender->lent[params[i].unsafeGetTensorImpl()].copy;
    EXPECT_TRUE(torch::equal(copy, params[i].detach().to(at::kHalf))) << i;
    EXPECT_EQ(copy._version() - versions[i], i % 7 < 3 ? 2 : 3) << i;
  }
}

TEST(StepContext, ACopyThatDoesNotFitIsAnError) {
  const auto params = make_parameters();
  FusedSGD sgd(params, FusedSGDOptions(0.1));
  const auto lender = std::make_shared<Lender>();
  set_step_context(sgd, lender);
  set_gradients(params, 0);
  const auto before = values(params);
  Lent& lent = lender->lent[params[4].unsafeGetTensorImpl()];
  const std::vector<at::Tensor> wrong{torch::empty({8, 3, 3, 3}, at::kHalf),
                                      torch::empty({216}, at::kHalf),
                                      torch::empty_like(params[4].detach(), at::kInt)};
  for (const at::Tensor& copy : wrong) {
    lent.copy = copy;
    EXPECT_THROW(sgd.step(), ConfigError);
    EXPECT_TRUE(identical(params, before));
  }
}

}  // namespace
}  // namespace mezzo::optim
