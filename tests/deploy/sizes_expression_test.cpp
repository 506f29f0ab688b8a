// Arithmetic on sizes is found from the numbers that it gave.
#include "deploy/sizes_expression.h"

#include <gtest/gtest.h>

#include <functional>

namespace mezzo::deploy {
namespace {

const std::vector<Seen> kSizes = {{2, 3, 4, 2, 3}, {8, 8, 8, 10, 11}, {24, 24, 24, 31, 45}};

struct Case {
  const char* what;
  std::function<std::int64_t(std::int64_t, std::int64_t, std::int64_t)> compute;
};

TEST(SizesExpression, WhatNetworksComputeIsFoundAndHoldsAtOtherSizes) {
  const std::vector<Case> cases = {
      {"a size", [](auto b, auto, auto) { return b; }},
      {"a multiple", [](auto, auto t, auto) { return 4 * t; }},
      {"a half", [](auto, auto, auto w) { return w / 2; }},
      {"a difference to a number", [](auto, auto t, auto) { return t - 1; }},
      {"a product", [](auto b, auto t, auto) { return b * t; }},
      {"a product with a factor", [](auto b, auto t, auto) { return 8 * b * t; }},
      {"a product of three", [](auto b, auto t, auto w) { return b * t * w; }},
      {"a sum", [](auto, auto t, auto w) { return t + w; }},
      {"a difference", [](auto, auto t, auto w) { return w - t + 1; }},
      {"a strided convolution's size", [](auto, auto, auto w) { return (w + 2 - 3) / 2 + 1; }},
      {"what is missing to windows of 7", [](auto, auto, auto w) { return (7 - w % 7) % 7; }},
  };
  for (const Case& one : cases) {
    Seen target;
    for (std::size_t i = 0; i < kSizes[0].size(); ++i)
      target.push_back(one.compute(kSizes[0][i], kSizes[1][i], kSizes[2][i]));
    const auto found = fit_sizes(kSizes, target);
    ASSERT_TRUE(found) << one.what;
    EXPECT_EQ(found->value({7, 13, 58}), one.compute(7, 13, 58)) << one.what;
  }
}

TEST(SizesExpression, ANumberThatFollowsFromNoSizeIsNotExplained) {
  EXPECT_FALSE(fit_sizes({{2, 3, 4}}, {17, 5, 99}));
  EXPECT_FALSE(fit_sizes({}, {1, 2}));
  EXPECT_FALSE(fit_scale({{2, 3, 4}}, {0.5, 17, 3}));
}

TEST(SizesExpression, ScalesOfAttentionAndOfMeansAreFound) {
  const auto root = fit_scale({{4, 9, 16}}, {0.5, 1.0 / 3, 0.25});
  ASSERT_TRUE(root);
  EXPECT_EQ(root->power, -0.5);
  EXPECT_NEAR(root->factor, 1, 1e-12);
  const auto mean = fit_scale({{4, 5, 8}}, {0.5, 0.4, 0.25});
  ASSERT_TRUE(mean);
  EXPECT_EQ(mean->power, -1);
  EXPECT_NEAR(mean->factor, 2, 1e-12);
}

}  // namespace
}  // namespace mezzo::deploy
