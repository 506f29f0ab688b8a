// How an output of a result differs from the original's.
#include "convert/judge/metrics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mezzo::convert {
namespace {

Array array_of(const std::vector<float>& values, std::vector<std::int64_t> dims) {
  Array array;
  array.element = Element::kFloat;
  array.dims = std::move(dims);
  array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return array;
}

TEST(Metrics, OfOneOutputFollowTheirDefinitions) {
  const Array reference = array_of({3, -4, 1, 2}, {2, 2});
  const OutputError error = compare_outputs("y", reference, array_of({3, -4, 2.5F, 2}, {2, 2}));
  EXPECT_DOUBLE_EQ(error.max_absolute, 1.5);
  EXPECT_DOUBLE_EQ(error.relative_to_range, 1.5 / 4);
  EXPECT_DOUBLE_EQ(error.sqnr_db, 10 * std::log10(30 / 2.25));
  EXPECT_DOUBLE_EQ(error.cosine, 31.5 / std::sqrt(30 * 35.25));
  EXPECT_DOUBLE_EQ(error.top1_agreement, 0.5);
  EXPECT_TRUE(error.finite && error.same_shape);
}

// More than one block of numbers, of both types, against plain sums.
TEST(Differences, OfManyNumbersAreThoseOfEach) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> a;
  std::vector<float> b;
  for (int i = 0; i < 3000; ++i) {
    a.push_back(static_cast<float>(std::sin(i)) * (i == 1700 ? 50.0F : 1.0F));
    b.push_back(a.back() + static_cast<float>(std::cos(3 * i)) / 64);
  }
  a[700] = b[700] = kInfinity;
  double noise = 0;
  double signal = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i == 700) continue;
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    noise += difference * difference;
    signal += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    largest = std::max(largest, difference);
  }
  const std::vector<double> wide_a(a.begin(), a.end());
  const std::vector<double> wide_b(b.begin(), b.end());
  Difference narrow;
  narrow.add(std::span<const float>(a), std::span<const float>(b));
  Difference wide;
  wide.add(std::span<const double>(wide_a), std::span<const double>(wide_b));
  for (const Difference& got : {narrow, wide}) {
    EXPECT_NEAR(got.noise, noise, 1e-9);
    EXPECT_NEAR(got.signal, signal, 1e-9);
    EXPECT_EQ(got.max_absolute, largest);
    EXPECT_EQ(got.range, std::fabs(static_cast<double>(a[1700])));
    EXPECT_TRUE(got.finite) << "both are infinite alike";
  }
  b[20] = -kInfinity;
  narrow.add(std::span<const float>(a), std::span<const float>(b));
  EXPECT_FALSE(narrow.finite);
}

// More or fewer detections are no infinity.
TEST(Metrics, AnotherShapeIsSaidAsSuch) {
  const Array reference = array_of({1, 2}, {2});
  const OutputError error = compare_outputs("y", reference, array_of({1, 2, 3}, {3}));
  EXPECT_FALSE(error.same_shape);
  EXPECT_TRUE(error.finite);
  EXPECT_TRUE(std::isinf(error.relative_to_range));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(compare_outputs("y", reference, array_of({1, infinity}, {1, 2})).finite);
  EXPECT_FALSE(compare_outputs("y", reference, array_of({1, infinity}, {2})).finite);
  EXPECT_FALSE(worse(error, compare_outputs("y", reference, reference)).same_shape);
}

// Probabilities count themselves, anything else after a softmax.
TEST(Metrics, KlDivergenceIsOverRows) {
  const double from_rows = 0.5 * (0.7 * std::log(0.7 / 0.6) + 0.3 * std::log(0.3 / 0.4));
  const OutputError rows = compare_outputs("y", array_of({0.7F, 0.3F, 0.5F, 0.5F}, {2, 2}),
                                           array_of({0.6F, 0.4F, 0.5F, 0.5F}, {2, 2}));
  EXPECT_NEAR(rows.kl_divergence, from_rows, 1e-6);
  const auto logit = [](double p) { return static_cast<float>(10 + std::log(p)); };
  const OutputError logits = compare_outputs("y", array_of({logit(0.7), logit(0.3)}, {2}),
                                             array_of({logit(0.6), logit(0.4)}, {2}));
  EXPECT_NEAR(logits.kl_divergence, 2 * from_rows, 1e-5);
  EXPECT_EQ(compare_outputs("y", array_of({1}, {1}), array_of({2}, {1})).kl_divergence, 0);
  EXPECT_EQ(compare_outputs("y", array_of({}, {0, 3}), array_of({}, {0, 3})).kl_divergence, 0);
  // A number that rounding made zero is not infinitely far.
  const OutputError zero =
      compare_outputs("y", array_of({0.999F, 0.001F}, {2}), array_of({1, 0}, {2}));
  EXPECT_GT(zero.kl_divergence, 0.001);
  EXPECT_LT(zero.kl_divergence, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(compare_outputs("y", array_of({1, -infinity}, {2}), array_of({1, -infinity}, {2}))
                .kl_divergence,
            0);
}

TEST(Metrics, QuantilesAreOverSamplesNumberByNumber) {
  SampleErrors samples;
  for (int i = 1; i <= 10; ++i) {
    OutputError error;
    error.name = "y";
    error.max_absolute = 11 - i;
    error.sqnr_db = i;
    error.finite = i != 3;
    samples.push_back({error});
  }
  const OutputError worst = worst_of(samples).at(0);
  EXPECT_EQ(worst.max_absolute, 10);
  EXPECT_EQ(worst.sqnr_db, 1);
  EXPECT_FALSE(worst.finite);
  const OutputError most = quantile_of(samples, 0.9).at(0);
  EXPECT_EQ(most.name, "y");
  EXPECT_EQ(most.max_absolute, 9);
  EXPECT_EQ(most.sqnr_db, 2);
  EXPECT_TRUE(most.finite);
  EXPECT_EQ(quantile_of(samples, 0.5).at(0).sqnr_db, 6);
  const OutputError last = quantile_of(samples, 1).at(0);
  EXPECT_EQ(last.max_absolute, worst.max_absolute);
  EXPECT_FALSE(last.finite);
  EXPECT_THAT(quantile_of({}, 0.5), testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo::convert
