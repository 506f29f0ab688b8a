#include "kernels/elements.h"

#include <gmock/gmock.h>

namespace mezzo::kernels {
namespace {

struct ScaleCase {
  const char* name;
  ScaleNumbers before;
  bool overflow;
  ScaleNumbers after;
};

constexpr ScaleRule kDynamicScale{2, 0.5, 1, 16, 3, true};
constexpr ScaleCase kCases[] = {
    {"AGoodStepCountsAndIsNotStuck", {8, 0, 1}, false, {8, 1, 0}},
    {"TheLastGoodStepOfAnIntervalDoubles", {4, 2, 0}, false, {8, 0, 0}},
    {"AnIntervalThatWasShortenedIsOverAtOnce", {4, 7, 0}, false, {8, 0, 0}},
    {"TheCeilingHolds", {16, 2, 0}, false, {16, 0, 0}},
    {"AnOverflowHalves", {8, 2, 0}, true, {4, 0, 0}},
    {"TheFloorHolds", {1.5F, 2, 0}, true, {1, 0, 0}},
    {"AnOverflowAtTheFloorIsCounted", {1, 2, 4}, true, {1, 0, 5}},
};

class UpdateScale : public testing::TestWithParam<ScaleCase> {};
INSTANTIATE_TEST_SUITE_P(Elements, UpdateScale, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

void expect_scale(const ScaleNumbers& got, const ScaleNumbers& expected) {
  EXPECT_EQ(got.scale, expected.scale);
  EXPECT_EQ(got.unskipped, expected.unskipped);
  EXPECT_EQ(got.stuck, expected.stuck);
}

TEST_P(UpdateScale, Moves) {
  expect_scale(update_scale(GetParam().before, GetParam().overflow, kDynamicScale),
               GetParam().after);
}

TEST(UpdateScale, AStaticScaleCountsAndStays) {
  constexpr ScaleRule fixed{2, 0.5, 1, 16, 3, false};
  expect_scale(update_scale({100.5F, 7, 0}, false, fixed), {100.5F, 8, 0});
  expect_scale(update_scale({100.5F, 7, 0}, true, fixed), {100.5F, 0, 0});
}

TEST(UpdateScale, ADoublingThatFloatCannotHoldIsLeftOut) {
  constexpr ScaleRule open{2, 0.5, 1, 3.4e38, 1, true};
  expect_scale(update_scale({3e38F, 0, 0}, false, open), {3e38F, 0, 0});
}

}  // namespace
}  // namespace mezzo::kernels
