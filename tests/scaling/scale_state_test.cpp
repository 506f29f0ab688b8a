#include "scaling/scale_state.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>

namespace mezzo::scaling {

void PrintTo(const ScaleState& state, std::ostream* out) {
  *out << "{" << state.scale << ", " << state.unskipped << ", " << state.stuck_at_floor << "}";
}

namespace {

constexpr ScaleRules kSmall{.growth_interval = 2, .floor = 1, .ceiling = 16, .patience = 2};
constexpr ScaleRules kStatic{.dynamic = false};

static_assert(advance({.scale = 8}, true, {}) == ScaleState{.scale = 4});
static_assert(advance({.scale = 8}, false, {}) == ScaleState{.scale = 8, .unskipped = 1});
static_assert(ScaleState{}.scale == 65536);

/// A trace of passes: '.' clean, 'x' overflow.
struct Trace {
  std::string_view name;
  ScaleRules rules;
  ScaleState start;
  std::string_view passes;
  ScaleState end;
  bool exhausted = false;
};

void PrintTo(const Trace& trace, std::ostream* out) {
  *out << trace.name;
}

const Trace kTraces[] = {
    {"NothingHappensWithoutPasses", kSmall, {8, 1, 0}, "", {8, 1, 0}},
    {"FirstCleanPassOnlyCounts", kSmall, {8, 0, 0}, ".", {8, 1, 0}},
    {"LastCleanPassOfTheIntervalDoubles", kSmall, {8, 1, 0}, ".", {16, 0, 0}},
    {"GrowthStopsAtTheCeilingButTheCountRestarts", kSmall, {16, 0, 0}, "..", {16, 0, 0}},
    {"OverflowHalvesAndRestartsTheCount", kSmall, {8, 1, 0}, "x", {4, 0, 0}},
    {"OverflowBetweenCleanPassesDelaysGrowth", kSmall, {8, 0, 0}, ".x.", {4, 1, 0}},
    {"ReachingTheFloorIsNotBeingStuckAtIt", kSmall, {2, 0, 0}, "x", {1, 0, 0}},
    {"OverflowAtTheFloorCounts", kSmall, {1, 0, 0}, "x", {1, 0, 1}},
    {"PatienceEndsAtTheFloor", kSmall, {1, 0, 0}, "xx", {1, 0, 2}, true},
    {"ACleanPassRestoresPatience", kSmall, {1, 0, 0}, "x.x", {1, 0, 1}},
    {"OverflowAfterGrowthFromTheFloorStartsAgain", kSmall, {1, 0, 1}, "..x", {1, 0, 0}},
    {"AScaleBelowTheFloorRisesToIt", kSmall, {0.5, 0, 0}, "x", {1, 0, 1}},
    {"AStaticScaleNeverMoves", kStatic, {128, 5, 0}, "..x.", {128, 1, 0}},
    {"AStaticScaleIsNeverExhausted",
     {.dynamic = false, .patience = 1},
     {1, 0, 0},
     "xxx",
     {1, 0, 0}},
    {"EndlessPatience", {.floor = 1, .patience = 0}, {1, 0, 0}, "xxx", {1, 0, 3}},
    {"DefaultsHalveFrom65536", {}, {}, "xxx", {8192, 0, 0}},
};

class Traces : public testing::TestWithParam<Trace> {};

TEST_P(Traces, EndWhereTheRulesSay) {
  ScaleState state = GetParam().start;
  for (const char pass : GetParam().passes) state = advance(state, pass == 'x', GetParam().rules);
  EXPECT_EQ(state, GetParam().end);
  EXPECT_EQ(exhausted(state, GetParam().rules), GetParam().exhausted);
}

INSTANTIATE_TEST_SUITE_P(ScaleState, Traces, testing::ValuesIn(kTraces),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ScaleState, GrowsAfterExactly2000CleanPassesByDefault) {
  ScaleState state;
  for (int i = 0; i < 1999; ++i) state = advance(state, false, {});
  EXPECT_EQ(state, (ScaleState{65536, 1999, 0}));
  EXPECT_EQ(advance(state, false, {}), (ScaleState{131072, 0, 0}));
}

TEST(ScaleState, FallsTo2ToTheMinus14AndGivesUpAfter50MoreOverflows) {
  ScaleState state;
  int overflows = 0;
  while (!exhausted(state, {})) {
    state = advance(state, true, {});
    ++overflows;
  }
  EXPECT_EQ(state.scale, 0x1p-14);
  EXPECT_EQ(overflows, 30 + 50);  // 2^16 to 2^-14, then the patience
}

TEST(ScaleState, BeginsBetweenFloorAndCeiling) {
  EXPECT_EQ(first_scale(65536, kSmall), 16);
  EXPECT_EQ(first_scale(0.25, kSmall), 1);
  EXPECT_EQ(first_scale(4, kSmall), 4);
  EXPECT_EQ(first_scale(1e30, kStatic), 1e30);
}

}  // namespace
}  // namespace mezzo::scaling
