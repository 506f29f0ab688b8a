#include <gmock/gmock.h>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

class Conversion : public testing::TestWithParam<const KernelSet*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Conversion, testing::ValuesIn(usable_kernel_sets()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST_P(Conversion, WidensEvery16BitNumberExactly) {
  for (const DType low : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(bits.size());
    GetParam()->copy({bits.data(), low, 65536}, {wide.data(), DType::kFloat32, 65536}, {0, 65536});
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double expected = value_of(bits[i], low);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(wide[i], expected) << i;
        ASSERT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
      }
    }
  }
}

TEST_P(Conversion, RoundsToNearestEvenOverTheWholeRangeOfFloat) {
  std::vector<float> wide;
  std::mt19937 engine(7);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(engine());
    float x = 0;
    std::memcpy(&x, &bits, 4);
    if (!std::isnan(x)) wide.push_back(x);
  }
  for (std::uint32_t i = 0; i < 65536; ++i) {  // every number, every tie, and their neighbours
    for (const DType low : {DType::kFloat16, DType::kBFloat16}) {
      const double here = value_of(static_cast<std::uint16_t>(i), low);
      const double next = value_of(static_cast<std::uint16_t>(i + 1), low);
      if (!std::isfinite(here) || !std::isfinite(next)) continue;
      const auto tie = static_cast<float>((here + next) / 2);
      wide.insert(wide.end(), {static_cast<float>(here), tie, std::nextafter(tie, 1e30f),
                               std::nextafter(tie, -1e30f)});
    }
  }
  wide.insert(wide.end(), {65504.0f, 65519.996f, 65520.0f, -65520.0f, 3.4e38f, INFINITY, -0.0f});
  const auto count = static_cast<std::int64_t>(wide.size());
  for (const DType low : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::uint16_t> narrow(wide.size());
    GetParam()->copy({wide.data(), DType::kFloat32, count}, {narrow.data(), low, count},
                     {0, count});
    for (std::size_t i = 0; i < wide.size(); ++i) {
      ASSERT_EQ(narrow[i], bits_of(static_cast<double>(wide[i]), low))
          << name_of(low) << " " << wide[i];
    }
  }
}

TEST_P(Conversion, KeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType low : {DType::kFloat16, DType::kBFloat16}) {
    std::uint16_t narrow = 0;
    GetParam()->copy({&nan, DType::kFloat32, 1}, {&narrow, low, 1}, {0, 1});
    EXPECT_TRUE(std::isnan(value_of(narrow, low)));
  }
}

TEST_P(Conversion, CopiesBetweenAllTypes) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      for (const std::int64_t count : kSizes) {
        const Array in = Array::random(from, count, 3);
        Array out(to, count);
        GetParam()->copy(in.in(), out.out(), in.all());
        for (std::int64_t i = 0; i < count; ++i) {
          const double expected =
              to == DType::kFloat64 ? in[i] : rounded_to(rounded_to(in[i], DType::kFloat32), to);
          ASSERT_EQ(out[i], expected)
              << name_of(from) << " to " << name_of(to) << " at " << i << " of " << count;
        }
      }
    }
  }
}

TEST_P(Conversion, WritesFloatsRoundedToALowType) {
  const Array in = Array::random(DType::kFloat32, 1003, 5);
  for (const auto& [kind, low] : {std::pair{CopyKind::kRoundedToFloat16, DType::kFloat16},
                                  std::pair{CopyKind::kRoundedToBFloat16, DType::kBFloat16}}) {
    Array out(DType::kFloat32, in.count());
    GetParam()->copy_as(in.in(), out.data(), kind, in.all());
    for (std::int64_t i = 0; i < in.count(); ++i) ASSERT_EQ(out[i], rounded_to(in[i], low));
  }
}

}  // namespace
}  // namespace mezzo::kernels
