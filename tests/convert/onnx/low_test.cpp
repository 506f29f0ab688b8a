#include "convert/onnx/low.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mezzo::convert {
namespace {

std::uint16_t rounded(Element low, float value) {
  // Nine elements, so that the vectorised part and the rest are both there.
  const std::vector<float> in(9, value);
  std::vector<std::uint16_t> out(9);
  round_to(low, in, out);
  EXPECT_EQ(out.front(), out.back()) << value;
  return out.back();
}

// The nearest of all finite values, ties to even, by search: the independent implementation.
std::uint16_t nearest(Element low, double value) {
  std::uint16_t best = 0;
  double distance = std::numeric_limits<double>::infinity();
  const std::uint16_t infinity = low == Element::kFloat16 ? 0x7C00 : 0x7F80;
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    const double d = std::fabs(std::fabs(value) - static_cast<double>(widen(low, bits)));
    if (d < distance || (d == distance && bits % 2 == 0)) {
      best = bits;
      distance = d;
    }
  }
  if (std::fabs(value) >= overflows_at(low)) best = infinity;
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000U : 0U));
}

TEST(Low, RoundsToNearestEven) {
  const std::vector<float> values{0.0F,     -0.0F,  1.0F,      -1.5F,    65504.0F, 65519.9F,
                                  65520.0F, -7e4F,  6.1e-5F,   5.96e-8F, 2.98e-8F, 2.99e-8F,
                                  -3e-8F,   1e-40F, 0.333333F, 2049.0F,  2051.0F,  3.3895314e38F,
                                  3.4e38F,  1e-38F, 123456.0F};
  for (const Element low : {Element::kFloat16, Element::kBFloat16}) {
    for (const float value : values) {
      EXPECT_EQ(rounded(low, value), nearest(low, value)) << name_of(low) << ' ' << value;
    }
  }
}

TEST(Low, KeepsEveryLowValueAndSpecialOnes) {
  for (const Element low : {Element::kFloat16, Element::kBFloat16}) {
    for (unsigned bits = 0; bits < 0x10000; bits += 7) {
      const float wide = widen(low, static_cast<std::uint16_t>(bits));
      if (std::isnan(wide)) {
        EXPECT_TRUE(std::isnan(widen(low, rounded(low, wide))));
      } else {
        EXPECT_EQ(rounded(low, wide), bits);
      }
    }
    EXPECT_TRUE(std::isinf(widen(low, rounded(low, std::numeric_limits<float>::infinity()))));
  }
}

TEST(Low, TreatsManyValuesAsItTreatsEach) {
  for (const Element low : {Element::kFloat16, Element::kBFloat16}) {
    std::vector<std::uint16_t> bits;
    for (unsigned each = 0; each < 0x10000; each += 5)
      bits.push_back(static_cast<std::uint16_t>(each));
    std::vector<float> wide(bits.size());
    widen_to(low, bits, wide);
    std::vector<float> between = wide;
    for (float& value : between) value *= 1.0003F;
    const std::vector<float> given = between;
    round_in_place(low, between);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float one = widen(low, bits[i]);
      if (std::isnan(one)) {
        EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(between[i]));
        continue;
      }
      EXPECT_EQ(wide[i], one) << bits[i];
      EXPECT_EQ(between[i], widen(low, rounded(low, given[i]))) << given[i];
    }
  }
}

TEST(Low, KnowsWhereValuesLeaveTheRange) {
  for (const Element low : {Element::kFloat16, Element::kBFloat16}) {
    const auto edge = static_cast<float>(overflows_at(low));
    EXPECT_TRUE(std::isinf(widen(low, rounded(low, edge))));
    EXPECT_EQ(widen(low, rounded(low, std::nextafter(edge, 0.0F))),
              static_cast<float>(largest(low)));
    const auto tiny = static_cast<float>(vanishes_at(low));
    EXPECT_EQ(widen(low, rounded(low, tiny)), 0.0F);
    EXPECT_GT(widen(low, rounded(low, std::nextafter(tiny, 1.0F))), 0.0F);
  }
}

}  // namespace
}  // namespace mezzo::convert
