#include "kernels/elements.h"

#include <gmock/gmock.h>

namespace mezzo::kernels {
namespace {

struct ScaleCase {
  const char* name;
  ScaleCounters before;
  bool overflow;
  ScaleCounters after;
};

constexpr ScaleRule kRule{2.0f, 0.5f, 3, 2};
constexpr ScaleCase kCases[] = {
    {"AGoodStepCountsAndRestoresThePatience", {8, 0, 1}, false, {8, 1, 2}},
    {"TheLastGoodStepOfAnIntervalDoubles", {8, 2, 2}, false, {16, 0, 2}},
    {"ADoublingThatWouldNotBeFiniteIsLeftOut", {3e38f, 2, 2}, false, {3e38f, 0, 2}},
    {"TheFirstOverflowOnlyCosts", {8, 2, 2}, true, {8, 0, 1}},
    {"TheOverflowThatExhaustsThePatienceHalves", {8, 0, 1}, true, {4, 0, 0}},
    {"EveryFurtherOverflowHalves", {4, 0, 0}, true, {2, 0, 0}},
};

class UpdateScale : public testing::TestWithParam<ScaleCase> {};
INSTANTIATE_TEST_SUITE_P(Elements, UpdateScale, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(UpdateScale, Moves) {
  const ScaleCounters got = update_scale(GetParam().before, GetParam().overflow, kRule);
  EXPECT_EQ(got.scale, GetParam().after.scale);
  EXPECT_EQ(got.growth, GetParam().after.growth);
  EXPECT_EQ(got.hysteresis, GetParam().after.hysteresis);
}

}  // namespace
}  // namespace mezzo::kernels
