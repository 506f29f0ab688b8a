// The minimum cut against all assignments.
#include "convert/decide/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace mezzo::convert {
namespace {

// All assignments of up to 12 variables, the independent implementation.
// Finite costs of being high only break ties, so that they are left out here.
TEST(CutTest, FindsTheCheapestAnswer) {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    return (state = state * 1664525 + 1013904223) / 65536 % below;
  };
  // Few casts, so that ties are common and the later places decide, and many bytes.
  const auto any_cost = [&] { return Cost{random(3), random(4) * 1'000'000, 1 + random(3)}; };
  for (int round = 0; round < 400; ++round) {
    const int n = 3 + static_cast<int>(random(8));
    Cut cut(static_cast<std::size_t>(n));
    std::vector<std::array<Cost, 2>> single(static_cast<std::size_t>(n));
    std::vector<std::tuple<std::int32_t, std::int32_t, Cost>> pairs;
    for (int i = 0; i < n; ++i) {
      auto& [low, high] = single[static_cast<std::size_t>(i)];
      if (random(3) == 0) low = any_cost();
      if (random(6) == 0) low = Cut::kInfinite;
      if (low < Cut::kInfinite && random(6) == 0) high = Cut::kInfinite;
      cut.pay_if_low(i, low);
      cut.pay_if_high(i, high);
    }
    for (int k = 0; k < 2 * n; ++k) {
      const auto a = static_cast<std::int32_t>(random(static_cast<std::uint32_t>(n)));
      const auto b = static_cast<std::int32_t>(random(static_cast<std::uint32_t>(n)));
      const Cost cost = any_cost();
      if (a == b) continue;
      cut.pay_if_split(a, b, cost);
      pairs.emplace_back(a, b, cost);
    }
    const auto cost_of = [&](auto is_low) {
      Cost cost;
      for (int i = 0; i < n; ++i) cost += single[static_cast<std::size_t>(i)][is_low(i) ? 0 : 1];
      for (const auto& [a, b, c] : pairs) cost += !is_low(a) && is_low(b) ? c : Cost{};
      return cost;
    };
    Cost best = Cut::kInfinite;
    for (unsigned bits = 0; bits < 1U << n; ++bits) {
      best = std::min(best, cost_of([&](std::int64_t i) { return (bits >> i & 1) != 0; }));
    }
    const std::vector<bool> answer = cut.solve();
    EXPECT_LE(cost_of([&](std::int64_t i) { return answer[static_cast<std::size_t>(i)]; }), best)
        << round;
  }
}

TEST(CutTest, FewerCastsCountMoreThanAnyNumberOfBytes) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  // high - 0 - 1 - low: two cheap casts in front, or one behind that moves much.
  Cut cut(4);
  cut.pay_if_low(0, Cut::kInfinite);
  cut.pay_if_high(3, Cut::kInfinite);
  cut.pay_if_split(0, 1, {2, 1, 0});
  cut.pay_if_split(1, 2, {1, kMany, 0});
  cut.pay_if_split(2, 3, {1, kMany - 1, 9});
  EXPECT_EQ(cut.solve(), (std::vector<bool>{false, false, false, true}));
}

TEST(CutTest, AmongEqualAnswersMostStaysHigh) {
  Cut cut(4);
  cut.pay_if_low(0, Cut::kInfinite);
  cut.pay_if_high(3, Cut::kInfinite);
  for (std::int32_t i = 0; i < 3; ++i) cut.pay_if_split(i, i + 1, {1, 6, 0});
  EXPECT_EQ(cut.solve(), (std::vector<bool>{false, false, false, true}));
}

}  // namespace
}  // namespace mezzo::convert
