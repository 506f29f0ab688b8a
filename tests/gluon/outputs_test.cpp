#include "mezzo/gluon_outputs.h"

#include <gmock/gmock.h>

#include "gluon/judged.h"

namespace mezzo::gluon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Runs an output operator on the judge's data and compares result and gradient.
template <typename Compute>
void expect_judged(const std::string& name, at::IntArrayRef shape, const Compute& compute) {
  const at::Tensor x = sines(24, 0.3, 2.0).reshape(shape).requires_grad_();
  const at::Tensor y = compute(x);
  // Gradients that arrive from above do not count.
  y.backward(torch::full_like(y, 7));
  EXPECT_TRUE(
      torch::allclose(y.flatten().to(at::kDouble), judged_tensor(name + ".result"), 1e-5, 1e-6))
      << name;
  EXPECT_TRUE(torch::allclose(x.grad().flatten().to(at::kDouble), judged_tensor(name + ".gradient"),
                              1e-5, 1e-6))
      << name << "\n"
      << x.grad().flatten() << judged_tensor(name + ".gradient");
}

void expect_judged_softmax(const std::string& name, at::IntArrayRef shape,
                           at::IntArrayRef label_shape, const SoftmaxOutputOptions& options) {
  const at::Tensor label = torch::arange(c10::multiply_integers(label_shape)).remainder(3);
  expect_judged(name, shape, [&](const at::Tensor& x) {
    return softmax_output(x, label.reshape(label_shape).to(at::kFloat), options);
  });
}

TEST(Outputs, SoftmaxIsMxnets) {
  expect_judged_softmax("softmax", {6, 4}, {6}, {});
  expect_judged_softmax("softmax_scale", {6, 4}, {6}, {.grad_scale = 2.5});
  expect_judged_softmax("softmax_batch", {6, 4}, {6}, {.normalization = "batch"});
  expect_judged_softmax("softmax_valid", {6, 4}, {6},
                        {.ignore_label = 1, .use_ignore = true, .normalization = "valid"});
  expect_judged_softmax("softmax_ignore", {6, 4}, {6}, {.ignore_label = 2, .use_ignore = true});
  expect_judged_softmax("softmax_smooth", {6, 4}, {6}, {.smooth_alpha = 0.2});
  expect_judged_softmax("softmax_multi", {2, 3, 4}, {2, 4}, {.multi_output = true});
  expect_judged_softmax("softmax_multi_batch", {2, 3, 4}, {2, 4},
                        {.multi_output = true, .normalization = "batch"});
  expect_judged_softmax(
      "softmax_multi_valid", {2, 3, 4}, {2, 4},
      {.ignore_label = 0, .multi_output = true, .use_ignore = true, .normalization = "valid"});
  expect_judged_softmax("softmax_multi_ignore", {2, 3, 4}, {2, 4},
                        {.ignore_label = 0, .multi_output = true, .use_ignore = true});
  expect_judged_softmax("softmax_shape", {2, 3, 4}, {2, 3}, {.preserve_shape = true});
  expect_judged_softmax("softmax_shape_batch", {2, 3, 4}, {2, 3},
                        {.preserve_shape = true, .normalization = "batch"});
}

TEST(Outputs, ProbabilitiesAsLabelsAreMxnets) {
  const at::Tensor label = sines(24, 1.0, 0.5).abs().reshape({6, 4});
  expect_judged("softmax_soft", {6, 4},
                [&](const at::Tensor& x) { return softmax_output(x, label, {.grad_scale = 3}); });
}

TEST(Outputs, RegressionsAreMxnets) {
  for (const auto& [suffix, shape] : std::map<std::string, std::vector<std::int64_t>>{
           {"", {6, 4}}, {"_one", {24}}, {"_three", {2, 3, 4}}}) {
    const at::Tensor label = sines(24, 1.0, 1.0).reshape(shape);
    const RegressionOutputOptions options{.grad_scale = 1.5};
    expect_judged("linear" + suffix, shape,
                  [&](const at::Tensor& x) { return linear_regression_output(x, label, options); });
    expect_judged("logistic" + suffix, shape, [&](const at::Tensor& x) {
      return logistic_regression_output(x, label, options);
    });
    expect_judged("mae" + suffix, shape,
                  [&](const at::Tensor& x) { return mae_regression_output(x, label, options); });
  }
}

TEST(Outputs, ComputeInFloatUnderCastsToo) {
  const auto handle = init({.target_dtype = "bfloat16"});
  const at::Tensor x = sines(24, 0.3, 2.0).reshape({6, 4}).to(at::kBFloat16).requires_grad_();
  const at::Tensor label = torch::arange(6).remainder(3);
  const at::Tensor y = softmax_output(x, label);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  const at::Tensor wide = sines(24, 0.3, 2.0).reshape({6, 4}).to(at::kDouble).requires_grad_();
  EXPECT_EQ(softmax_output(wide, label).scalar_type(), at::kDouble);
}

TEST(Outputs, AnIntermediateResultMayBeUsedOnAndInputsStay) {
  const at::Tensor x = sines(4, 0.3, 2.0).requires_grad_();
  const at::Tensor y = linear_regression_output(x, torch::zeros({4}));
  EXPECT_FALSE(y.is_same(x));
  y.mul(3).sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), x.detach()));
}

TEST(Outputs, WhatDoesNotFitIsAnError) {
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  const at::Tensor x = torch::ones({6, 4});
  EXPECT_THAT([&] { softmax_output(x, torch::ones({5})); }, message("expected 6 class indices"));
  EXPECT_THAT([&] { softmax_output(x, torch::ones({6}), {.normalization = "none"}); },
              message("'none'"));
  EXPECT_THAT([&] { softmax_output(x, torch::ones({6}), {.smooth_alpha = 2}); },
              message("smooth_alpha is 2"));
  EXPECT_THAT([&] { softmax_output(torch::ones({4}), torch::ones({4}), {.multi_output = true}); },
              message("multi_output"));
  EXPECT_THAT([&] { linear_regression_output(x, torch::ones({6})); }, message("as many elements"));
}

}  // namespace
}  // namespace mezzo::gluon
