#include <gmock/gmock.h>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Reductions : public testing::TestWithParam<const KernelSet*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Reductions, testing::ValuesIn(usable_kernel_sets()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST_P(Reductions, FindASingleBadElementWhereverItIs) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t count : kSizes) {
      Array x = Array::random(dtype, count, 1);
      EXPECT_TRUE(GetParam()->all_finite(x.in(), x.all()));
      for (const double bad : {kInfinity, -kInfinity, kNaN}) {
        for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
          if (count == 0) continue;
          const double kept = x[at];
          std::isnan(bad) && size_of(dtype) == 2
              ? void(static_cast<std::uint16_t*>(x.data())[at] = 0x7fff)
              : x.set(at, bad);
          EXPECT_FALSE(GetParam()->all_finite(x.in(), x.all())) << name_of(dtype) << at;
          EXPECT_FALSE(std::isfinite(GetParam()->square_sum(x.in(), x.all())));
          const double magnitude = GetParam()->max_magnitude(x.in(), x.all());
          EXPECT_TRUE(std::isnan(bad) ? std::isnan(magnitude) : magnitude == kInfinity);
          x.set(at, kept);
        }
      }
    }
  }
}

TEST_P(Reductions, TheLargestFiniteNumbersAreFinite) {
  Array x(DType::kFloat32, std::vector<double>{3.4028234663852886e38, -3.4028234663852886e38});
  EXPECT_TRUE(GetParam()->all_finite(x.in(), x.all()));
  EXPECT_NEAR(GetParam()->square_sum(x.in(), x.all()) / 2.3158e77, 1.0, 1e-4);
}

TEST_P(Reductions, SumsAndMaximaAgreeWithDouble) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t count : kSizes) {
      const Array x = Array::random(dtype, count, 2);
      double sum = 0;
      double largest_one = 0;
      for (const double value : x.values()) {
        sum += value * value;
        largest_one = std::max(largest_one, std::abs(value));
      }
      EXPECT_NEAR(GetParam()->square_sum(x.in(), x.all()), sum, 1e-12 * sum);
      EXPECT_EQ(GetParam()->max_magnitude(x.in(), x.all()), largest_one);
    }
  }
}

TEST_P(Reductions, ScaleBetweenAllTypesAgreesWithDouble) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      for (const std::int64_t count : kSizes) {
        const Array in = Array::random(from, count, 3);
        Array out(to, count);
        EXPECT_TRUE(GetParam()->scale(in.in(), out.out(), in.all(), 0.37));
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_NEAR(out[i], in[i] * 0.37, tolerance_of(size_of(to) == 2 ? to : DType::kFloat32));
        }
      }
    }
  }
}

struct FlagCase {
  const char* name;
  DType from, to;
  double value, factor;
  bool finite;
};
constexpr FlagCase kFlagCases[] = {
    {"AnInfiniteInputIsFlagged", DType::kFloat32, DType::kFloat32, kInfinity, 1, false},
    {"AnInfiniteInputIsFlaggedThoughTheFactorIsZero", DType::kFloat32, DType::kFloat32, kInfinity,
     0, false},
    {"AnOutputThatOverflowsHalfIsFlagged", DType::kFloat32, DType::kFloat16, 65520, 1, false},
    {"TheLargestThatRoundsIntoHalfIsNot", DType::kFloat32, DType::kFloat16, 65519, 1, true},
    {"AnOutputThatOverflowsBFloat16IsFlagged", DType::kFloat32, DType::kBFloat16, 3.4e38, 1, false},
    {"AnOutputThatOverflowsFloatIsFlagged", DType::kFloat32, DType::kFloat32, 3e38, 2, false},
    {"ADoubleThatOverflowsFloatIsFlagged", DType::kFloat64, DType::kFloat32, 1e300, 1, false},
    {"ALargeDoubleIsFine", DType::kFloat64, DType::kFloat64, 1e300, 1, true},
};

TEST_P(Reductions, ScaleAndAxpbyFlagWhatIsNotFinite) {
  for (const FlagCase& row : kFlagCases) {
    for (const std::int64_t count : {1, 17, 64}) {
      for (const std::int64_t at : {std::int64_t{0}, count - 1}) {
        Array in = Array::random(row.from, count, 4);
        in.set(at, row.value);
        Array out(row.to, count);
        const Array zero(row.from, count);
        EXPECT_EQ(GetParam()->scale(in.in(), out.out(), in.all(), row.factor), row.finite)
            << row.name;
        EXPECT_EQ(GetParam()->axpby(in.in(), zero.in(), out.out(), in.all(), row.factor, 1),
                  row.finite)
            << row.name;
      }
    }
  }
}

TEST_P(Reductions, AxpbyAgreesWithDoubleAndMayWorkInPlace) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t count : kSizes) {
      const Array x = Array::random(dtype, count, 5);
      Array y = Array::random(dtype, count, 6);
      const std::vector<double> before = y.values();
      EXPECT_TRUE(GetParam()->axpby(x.in(), y.in(), y.out(), x.all(), 2.0, -0.5));
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_NEAR(y[i], 2.0 * x[i] - 0.5 * before[static_cast<std::size_t>(i)],
                    3 * tolerance_of(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::kernels
