#include "core/dtype.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mezzo
