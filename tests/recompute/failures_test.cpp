// Calls that cannot be right are errors that say what happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/error.h"
#include "mezzo/recompute.h"

namespace mezzo {
namespace {

using ::testing::HasSubstr;

template <typename Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

at::Tensor twice(const at::Tensor& a) {
  return a * a;
}

TEST(RecomputeFailures, AnInputOrAWeightThatWasWrittenInBetween) {
  const at::Tensor x = torch::ones({3}).requires_grad_();
  const at::Tensor input = x * 1;
  const at::Tensor y = recompute(&twice, input);
  {
    const torch::NoGradGuard no_grad;
    input.add_(1);
  }
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("an input of sizes [3]"));

  torch::nn::Linear layer(3, 3);
  const at::Tensor z = recompute(layer, x);
  {
    const torch::NoGradGuard no_grad;
    layer->weight.mul_(2);
  }
  EXPECT_THAT(message_of([&] { z.sum().backward(); }), HasSubstr("a weight of sizes [3, 3]"));
}

TEST(RecomputeFailures, AFunctionThatDoesSomethingElseTheSecondTime) {
  const at::Tensor x = torch::ones({3}).requires_grad_();
  const at::Tensor w = torch::ones({3}).requires_grad_();
  int calls = 0;
  const at::Tensor shape =
      recompute([&](const at::Tensor& a) { return ++calls == 1 ? a * 2 : a[0] * 2; }, x);
  EXPECT_THAT(message_of([&] { shape.sum().backward(); }), HasSubstr("ran again"));
  calls = 0;
  const at::Tensor weight =
      recompute([&](const at::Tensor& a) { return ++calls == 1 ? a * 2 : a * w; }, x);
  EXPECT_THAT(message_of([&] { weight.sum().backward(); }), HasSubstr("another weight"));
}

TEST(RecomputeFailures, AnExceptionInTheSecondRunReachesTheCallerAndLeavesNothingBehind) {
  const at::Tensor x = torch::ones({3}).requires_grad_();
  int calls = 0;
  const at::Tensor y = recompute(
      [&](const at::Tensor& a) {
        if (++calls == 2) throw std::runtime_error("no more");
        return a * torch::rand({3});
      },
      x);
  torch::manual_seed(1);
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("no more"));
  const at::Tensor drawn = torch::rand({3});
  torch::manual_seed(1);
  EXPECT_TRUE(drawn.equal(torch::rand({3})));
}

TEST(RecomputeFailures, SegmentsThatCannotBe) {
  torch::nn::Sequential layers(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  EXPECT_THROW(recompute_sequential(layers, 0, torch::ones({3})), ConfigError);
  EXPECT_THROW(recompute_sequential(layers, 3, torch::ones({3})), ConfigError);
}

}  // namespace
}  // namespace mezzo
