#include "core/scalar_type.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gmock/gmock.h>

#include <limits>

namespace mezzo {
namespace {

TEST(ScalarType, RowsHaveLibTorchsNamesAndSizes) {
  for (const DTypeRow& row : kDTypes) {
    const at::ScalarType type = scalar_type_of(row.dtype);
    EXPECT_EQ(c10::toString(type), row.torch_name);
    EXPECT_EQ(c10::elementSize(type), row.size) << row.name;
    EXPECT_EQ(c10::isFloatingType(type), row.is_float) << row.name;
    EXPECT_EQ(dtype_of(type), row.dtype) << row.name;
  }
}

template <typename T>
void expect_limits(DType dtype) {
  using Limits = std::numeric_limits<T>;
  const DTypeRow& row = row_of(dtype);
  EXPECT_EQ(row.largest, static_cast<double>(Limits::max())) << row.name;
  EXPECT_EQ(row.smallest_normal, static_cast<double>(Limits::min())) << row.name;
  EXPECT_EQ(row.epsilon, static_cast<double>(Limits::epsilon())) << row.name;
}

TEST(ScalarType, RowsHaveLibTorchsLimits) {
  expect_limits<c10::Half>(DType::kFloat16);
  expect_limits<c10::BFloat16>(DType::kBFloat16);
  expect_limits<float>(DType::kFloat32);
  expect_limits<double>(DType::kFloat64);
}

TEST(ScalarType, OfOthersThereIsNoRow) {
  for (const at::ScalarType type :
       {at::kComplexFloat, at::kFloat8_e4m3fn, at::ScalarType::Undefined}) {
    EXPECT_EQ(row_of(type), nullptr) << c10::toString(type);
    EXPECT_FALSE(dtype_of(type)) << c10::toString(type);
    EXPECT_FALSE(is_low(type)) << c10::toString(type);
    EXPECT_FALSE(is_network_type(type)) << c10::toString(type);
  }
}

TEST(ScalarType, ANumberThatIsNoTypeIsAnError) {
  EXPECT_THAT([] { scalar_type_of(static_cast<DType>(99)); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("99")));
}

TEST(ScalarType, OnlyALowTypeIsTakenForOne) {
  EXPECT_EQ(low_dtype_of(at::kBFloat16, "here"), DType::kBFloat16);
  EXPECT_THAT([] { low_dtype_of(at::kFloat, "here"); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr(
                  "[here] the low type is Float; expected float16 (Half) or bfloat16 (BFloat16)")));
}

}  // namespace
}  // namespace mezzo
