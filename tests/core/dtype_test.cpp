#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mezzo {
namespace {

TEST(DType, EveryNameIsReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype) << name_of(dtype);
  }
}

TEST(DType, AliasesNameTheSameType) {
  EXPECT_EQ(parse_dtype("half"), DType::kFloat16);
  EXPECT_EQ(parse_dtype("fp16"), DType::kFloat16);
  EXPECT_EQ(parse_dtype("bf16"), DType::kBFloat16);
  EXPECT_EQ(parse_dtype("float"), DType::kFloat32);
  EXPECT_EQ(parse_dtype("double"), DType::kFloat64);
}

TEST(DType, AnUnknownNameIsNothing) {
  EXPECT_FALSE(parse_dtype("float8"));
  EXPECT_FALSE(parse_dtype(""));
}

TEST(DType, OnlyTheTwoSixteenBitFloatsAreLow) {
  EXPECT_TRUE(is_low(DType::kFloat16));
  EXPECT_TRUE(is_low(DType::kBFloat16));
  EXPECT_FALSE(is_low(DType::kFloat32));
  EXPECT_FALSE(is_low(DType::kInt16));
}

TEST(DType, LimitsAreThoseOfTheBits) {
  // A format with e bits of exponent and m of fraction, by IEEE 754.
  struct Format {
    DType dtype;
    int exponent, fraction;
  };
  for (const auto& [dtype, exponent, fraction] :
       {Format{DType::kFloat16, 5, 10}, Format{DType::kBFloat16, 8, 7},
        Format{DType::kFloat32, 8, 23}, Format{DType::kFloat64, 11, 52}}) {
    const int bias = (1 << (exponent - 1)) - 1;
    const DTypeRow& row = row_of(dtype);
    EXPECT_EQ(row.epsilon, std::ldexp(1.0, -fraction)) << row.name;
    EXPECT_EQ(row.smallest_normal, std::ldexp(1.0, 1 - bias)) << row.name;
    EXPECT_EQ(row.largest, std::ldexp(2.0 - row.epsilon, bias)) << row.name;
    EXPECT_EQ(row.size * 8, static_cast<std::size_t>(1 + exponent + fraction)) << row.name;
  }
}

TEST(DType, LowTypesStandByTheirColumns) {
  for (std::size_t column = 0; column < kLowTypes.size(); ++column) {
    EXPECT_EQ(row_of(kLowTypes[column]).low_column, static_cast<int>(column));
    EXPECT_TRUE(row_of(kLowTypes[column]).is_float);
  }
}

TEST(DType, MessagesNameTheTypesOfTheRows) {
  EXPECT_EQ(low_type_names(), "float16 or bfloat16");
  EXPECT_EQ(low_type_names("|"), "float16|bfloat16");
  EXPECT_EQ(floating_type_names(&DTypeRow::name), "float16, bfloat16, float32, float64");
  EXPECT_EQ(floating_type_names(&DTypeRow::torch_name, " or "), "Half, BFloat16, Float or Double");
}

}  // namespace
}  // namespace mezzo
