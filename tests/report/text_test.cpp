#include "report/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mezzo::report {
namespace {

TEST(Text, BytesUseTheLargestUnitBelowThem) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(1023), "1023 B");
  EXPECT_EQ(bytes(1024), "1.0 KiB");
  EXPECT_EQ(bytes(1536), "1.5 KiB");
  EXPECT_EQ(bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(bytes(std::int64_t{5} << 40), "5.0 TiB");
}

TEST(Text, AScaleIsShortAndExact) {
  EXPECT_EQ(scale_text(1), "1");
  EXPECT_EQ(scale_text(65536), "65536");
  EXPECT_EQ(scale_text(128.5), "128.5");
  EXPECT_EQ(scale_text(16777216), "2^24");
  EXPECT_EQ(scale_text(std::exp2(-14)), "2^-14");
  EXPECT_EQ(scale_text(0), "0");
}

TEST(Text, TimesReadAsPeopleSayThem) {
  EXPECT_EQ(milliseconds(0.0471), "47.1 ms");
  EXPECT_EQ(milliseconds(0.00123), "1.23 ms");
  EXPECT_EQ(clock(0), "0:00");
  EXPECT_EQ(clock(74.2), "1:15");
  EXPECT_EQ(clock(3661), "1:01:01");
  EXPECT_EQ(clock(std::nan("")), "-:--");
}

TEST(Text, NumbersThatAreNoneAreShownAsSuch) {
  EXPECT_EQ(fixed(std::nan(""), 2), "nan");
  EXPECT_EQ(fixed(-INFINITY, 2), "-inf");
  EXPECT_EQ(percent(0.9123), "91.23 %");
}

}  // namespace
}  // namespace mezzo::report
