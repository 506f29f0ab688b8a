// Scalars that the low type cannot hold: out of place the operator runs in float, in place it takes
// the nearest finite value.
#include "casting/held_scalars.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "casting/scope.h"
#include "mezzo/messages.h"

namespace mezzo::casting {
namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor mask() {
  return torch::tensor({true, false, false, true});
}

struct Family {
  const char* name;
  Function out_of_place;
  bool is_float = false;  // whatever its scalar, where operators follow the policy
};

const std::vector<Family>& families_of(double value) {
  static std::map<double, std::vector<Family>> all;
  if (all.contains(value)) return all[value];
  const at::Tensor index = torch::tensor({0, 2}, at::kLong);
  const at::Tensor zero_dimensional = torch::scalar_tensor(value, at::kFloat);
  return all[value] = {
             {"add", [=](const at::Tensor& x) { return x + value; }},
             {"sub", [=](const at::Tensor& x) { return x - value; }},
             {"mul", [=](const at::Tensor& x) { return x * value; }},
             {"div", [=](const at::Tensor& x) { return x / value; }},
             {"rsub", [=](const at::Tensor& x) { return torch::rsub(x, value); }},
             {"add 0-dim", [=](const at::Tensor& x) { return x + zero_dimensional; }},
             {"mul 0-dim", [=](const at::Tensor& x) { return x * zero_dimensional; }},
             {"div 0-dim", [=](const at::Tensor& x) { return x / zero_dimensional; }},
             {"copysign 0-dim",
              [=](const at::Tensor& x) { return torch::copysign(zero_dimensional, x); }},
             {"hypot", [=](const at::Tensor& x) { return torch::hypot(x, zero_dimensional); },
              true},
             {"xlogy",
              [=](const at::Tensor& x) { return torch::xlogy(x, zero_dimensional.abs()); }},
             {"logaddexp",
              [=](const at::Tensor& x) { return torch::logaddexp(x, zero_dimensional); }, true},
             {"logaddexp2",
              [=](const at::Tensor& x) { return torch::logaddexp2(x, zero_dimensional); }},
             {"pow", [=](const at::Tensor& x) { return torch::pow(std::abs(value), x); }, true},
             {"elu", [=](const at::Tensor& x) { return torch::elu(x, value); }, true},
             {"softplus",
              [=](const at::Tensor& x) { return at::softplus(x, std::abs(value), 1e-3); }, true},
             {"clamp 0-dim", [=](const at::Tensor& x) { return x.clamp(zero_dimensional); }},
             {"clamp above 0-dim",
              [=](const at::Tensor& x) { return x.clamp({}, zero_dimensional); }},
             {"index_add",
              [=](const at::Tensor& x) {
                return x.index_add(0, index, torch::ones({2}, x.options()), value);
              }},
             {"maximum", [=](const at::Tensor& x) { return torch::maximum(x, zero_dimensional); }},
             {"minimum", [=](const at::Tensor& x) { return torch::minimum(x, zero_dimensional); }},
             {"fmax", [=](const at::Tensor& x) { return torch::fmax(x, zero_dimensional); }},
             {"where", [=](const at::Tensor& x) { return torch::where(mask(), x, value); }},
             {"where 0-dim",
              [=](const at::Tensor& x) { return torch::where(mask(), zero_dimensional, x); }},
             {"masked_fill", [=](const at::Tensor& x) { return x.masked_fill(mask(), value); }},
             {"masked_fill 0-dim",
              [=](const at::Tensor& x) { return x.masked_fill(mask(), zero_dimensional); }},
             {"index_fill", [=](const at::Tensor& x) { return x.index_fill(0, index, value); }},
             {"scatter", [=](const at::Tensor& x) { return x.scatter(0, index, value); }},
             {"clamp", [=](const at::Tensor& x) { return x.clamp(value); }},
             {"clamp_min", [=](const at::Tensor& x) { return x.clamp_min(value); }},
             {"clamp_max", [=](const at::Tensor& x) { return x.clamp_max(value); }},
             {"clip", [=](const at::Tensor& x) { return x.clip(value); }},
             {"threshold", [=](const at::Tensor& x) { return torch::threshold(x, 0.5, value); }},
             {"hardtanh", [=](const at::Tensor& x) { return torch::hardtanh(x, -1e9, value); }},
             {"pad",
              [=](const at::Tensor& x) {
                return torch::constant_pad_nd(x, {1, 1}, value);
              }},
             {"full_like", [=](const at::Tensor& x) { return torch::full_like(x, value) + x; }},
             {"new_full", [=](const at::Tensor& x) { return x.new_full({4}, value) + x; }},
             {"addcmul", [=](const at::Tensor& x) { return torch::addcmul(x, x, x, value); }},
         };
}

struct HeldSetting {
  at::ScalarType low;
  Mode mode;
  double value;
};

class HeldScalars : public testing::TestWithParam<HeldSetting> {};

TEST_P(HeldScalars, AnOperatorThatCannotHoldItsScalarIsTheFloatOne) {
  const HeldSetting setting = GetParam();
  const at::Tensor values = torch::tensor({0.25F, -0.5F, 2.0F, 0.75F});
  const Policy policy = Policy::defaults(setting.low);
  for (const Family& family : families_of(setting.value)) {
    const at::Tensor wide = values.clone().requires_grad_();
    const at::Tensor expected = family.out_of_place(wide);
    const at::Tensor low = values.to(setting.low).requires_grad_();
    at::Tensor got;
    {
      const Scope scope(policy, setting.mode);
      got = family.out_of_place(low);
    }
    EXPECT_EQ(got.scalar_type(), at::kFloat) << family.name;
    EXPECT_TRUE(at::allclose(got, expected, 1e-6, 0)) << family.name << '\n' << got << expected;
    const at::Tensor cotangent = torch::tensor({1.0F, 2.0F, -1.0F, 0.5F});
    if (!expected.requires_grad() || expected.numel() != 4) continue;
    const at::Tensor wide_gradient = torch::autograd::grad({expected}, {wide}, {cotangent})[0];
    const at::Tensor gradient = torch::autograd::grad({got}, {low}, {cotangent})[0];
    EXPECT_EQ(gradient.scalar_type(), setting.low) << family.name;
    EXPECT_TRUE(at::equal(gradient, wide_gradient.to(setting.low))) << family.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Casting, HeldScalars,
                         testing::Values(HeldSetting{at::kHalf, Mode::kOperators, -1e9},
                                         HeldSetting{at::kHalf, Mode::kOperators, 1e-8},
                                         HeldSetting{at::kHalf, Mode::kOperators, 1e-5},
                                         HeldSetting{at::kHalf, Mode::kWholeModel, -1e9},
                                         HeldSetting{at::kHalf, Mode::kWholeModel, 1e-8},
                                         HeldSetting{at::kBFloat16, Mode::kOperators,
                                                     std::numeric_limits<float>::lowest()},
                                         HeldSetting{at::kBFloat16, Mode::kWholeModel,
                                                     std::numeric_limits<float>::lowest()}));

TEST(HeldScalars, WhatIsHeldKeepsTheType) {
  const at::Tensor x = torch::ones({4}, at::kHalf);
  const Scope scope(Policy::defaults(at::kHalf));
  for (const Family& family : families_of(0.5)) {
    if (std::string(family.name) == "hardtanh") continue;  // its other bound is not held
    if (family.is_float) continue;
    EXPECT_EQ(family.out_of_place(x).scalar_type(), at::kHalf) << family.name;
  }
  EXPECT_EQ(x.masked_fill(mask(), -std::numeric_limits<double>::infinity()).scalar_type(),
            at::kHalf);
  EXPECT_EQ((x * 0.0).scalar_type(), at::kHalf);
}

TEST(HeldScalars, FactorsOfProductsThatFloat16CannotHoldMakeThemFloat) {
  const at::Tensor square = torch::tensor({{0.25F, -0.5F}, {2.0F, 0.75F}});
  const at::Tensor row = square[0];
  const at::Tensor batch = square.unsqueeze(0);
  for (const double value : {1e-7, 1e6}) {
    const std::vector<std::pair<const char*, std::function<at::Tensor()>>> products{
        {"addmm alpha", [&] { return torch::addmm(square, square, square, 1, value); }},
        {"addmm beta", [&] { return torch::addmm(square, square, square, value); }},
        {"addmv", [&] { return torch::addmv(row, square, row, value); }},
        {"addr", [&] { return torch::addr(square, row, row, value); }},
        {"addbmm", [&] { return torch::addbmm(square, batch, batch, value); }},
        {"baddbmm", [&] { return torch::baddbmm(batch, batch, batch, 1, value); }},
    };
    for (const auto& [name, product] : products) {
      const at::Tensor expected = product();
      const Scope scope(Policy::defaults(at::kHalf));
      const at::Tensor got = product();
      EXPECT_EQ(got.scalar_type(), at::kFloat) << name;
      EXPECT_TRUE(at::allclose(got, expected, 1e-6, 0)) << name << '\n' << got << expected;
    }
  }
  const Scope scope(Policy::defaults(at::kHalf));
  EXPECT_EQ(torch::addmm(square, square, square).scalar_type(), at::kHalf);
}

TEST(HeldScalars, LogitKeepsItsEpsilon) {
  const at::Tensor zero = torch::zeros({1}, at::kHalf);
  const Scope scope(Policy::defaults(at::kHalf));
  EXPECT_NEAR(torch::logit(zero, 1e-8).item<float>(), -18.42F, 0.01);
}

TEST(HeldScalars, EpsilonsKeepLogarithmsAndQuotientsFinite) {
  const at::Tensor scores = torch::tensor({-8.0F, 0.0F, 3.0F}).to(at::kHalf).requires_grad_();
  const at::Tensor zeros = torch::zeros({3}, at::kHalf);
  at::Tensor logs;
  {
    const Scope scope(Policy::defaults(at::kHalf));
    logs = torch::log(torch::sigmoid(scores) + 1e-8);
    EXPECT_TRUE(torch::log(torch::sigmoid(scores - 12) + 1e-8).isfinite().all().item<bool>());
    EXPECT_TRUE((zeros / (zeros.amax() + 1e-8)).isfinite().all().item<bool>());
  }
  EXPECT_TRUE(logs.isfinite().all().item<bool>());
  logs.sum().backward();
  EXPECT_TRUE(scores.grad().isfinite().all().item<bool>());
}

TEST(HeldScalars, InPlaceOperatorsTakeTheNearestFiniteValueAndSaySoOnce) {
  int told = 0;
  const MessageSink before = set_message_sink([&](const std::string& text) {
    told += text.find("nearest finite value") != std::string::npos;
  });
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
    const double too_large = low == at::kHalf ? 1e9 : std::numeric_limits<float>::max();
    const double largest = low == at::kHalf ? 65504 : 0x1.FEp127;
    const at::Tensor index = torch::tensor({0, 2}, at::kLong);
    const std::vector<std::pair<const char*, std::function<void(at::Tensor&)>>> families{
        {"masked_fill_", [&](at::Tensor& x) { x.masked_fill_(mask(), -too_large); }},
        {"fill_", [&](at::Tensor& x) { x.fill_(-too_large); }},
        {"index_fill_", [&](at::Tensor& x) { x.index_fill_(0, index, -too_large); }},
        {"scatter_", [&](at::Tensor& x) { x.scatter_(0, index, -too_large); }},
        {"clamp_max_", [&](at::Tensor& x) { x.clamp_max_(-too_large); }},
        {"clamp_", [&](at::Tensor& x) { x.clamp_({}, -too_large); }},
        {"threshold_", [&](at::Tensor& x) { torch::threshold_(x, 5, -too_large); }},
    };
    for (const Mode mode : {Mode::kOperators, Mode::kWholeModel}) {
      for (const auto& [name, write] : families) {
        at::Tensor x = torch::ones({4}, low);
        const Scope scope(Policy::defaults(low), mode);
        write(x);
        EXPECT_EQ(x.scalar_type(), low) << name;
        EXPECT_EQ(x[0].item<double>(), -largest) << name;
      }
    }
  }
  set_message_sink(before);
  EXPECT_EQ(told, 1);
}

TEST(HeldScalars, GuardsInPlaceKeepZerosFromDividing) {
  const MessageSink before = set_message_sink([](const std::string&) {});
  const float smallest = 0x1p-24F;
  for (const Mode mode : {Mode::kOperators, Mode::kWholeModel}) {
    const Scope scope(Policy::defaults(at::kHalf), mode);
    const at::Tensor values = torch::tensor({0.0F, 0.5F, smallest}).to(at::kHalf);
    const at::Tensor kept = torch::tensor({smallest, 0.5F, smallest}).to(at::kHalf);
    EXPECT_TRUE(at::equal(values.clone().clamp_min_(1e-8), kept));
    EXPECT_TRUE(at::equal(values.clone().add_(1e-8), kept));
    EXPECT_TRUE(at::equal(values.clone().sub_(1e-8),
                          torch::tensor({-smallest, 0.5F, smallest}).to(at::kHalf)));
    EXPECT_EQ(values.clone().mul_(1e-9).abs().max().item<float>(), 0);
    EXPECT_EQ(values.clone().fill_(1e-9).abs().max().item<float>(), 0);
    const at::Tensor zeros = torch::zeros({2, 3}, at::kHalf);
    const at::Tensor likeness = torch::cosine_similarity(zeros, torch::ones({2, 3}, at::kHalf));
    EXPECT_EQ(likeness.abs().max().item<float>(), 0);
  }
  set_message_sink(before);
}

TEST(HeldScalars, TrueInfinitiesStayInPlace) {
  at::Tensor x = torch::full({4}, -std::numeric_limits<float>::infinity(), at::kHalf);
  const Scope scope(Policy::defaults(at::kHalf));
  x.masked_fill_(mask(), 1e9);
  EXPECT_EQ(x[0].item<float>(), 65504);
  EXPECT_TRUE(x[1].isinf().item<bool>());
}

TEST(HeldScalars, WhatLibTorchComposesInPlaceSaysHowToWriteIt) {
  std::string told;
  const MessageSink before = set_message_sink([&](const std::string& text) { told += text; });
  const at::Tensor x = torch::full({2}, 4.0F, at::kHalf);
  {
    const Scope scope(Policy::defaults(at::kHalf));
    EXPECT_EQ((1 / x)[0].item<float>(), 0.25F);
  }
  set_message_sink(before);
  EXPECT_NE(told.find("reciprocal()"), std::string::npos) << told;
}

}  // namespace
}  // namespace mezzo::casting
