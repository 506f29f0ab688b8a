#include "casting/decision.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace mezzo::casting {
namespace {

constexpr Operands kFloats{.float32 = true};
constexpr Operands kHalves{.half = true};
constexpr Operands kMixed{.float32 = true, .half = true};
constexpr Operands kBothLow{.half = true, .bfloat16 = true};
constexpr Operands kWithDouble{.float32 = true, .untouchable = true};
constexpr Operands kOnDevice{.float32 = true, .off_cpu = true};
constexpr Operands kIntoHalf{.float32 = true, .half = true, .written = at::kHalf};

constexpr ScopeRules kNative{.low = at::kHalf};
constexpr ScopeRules kEmulated{.low = at::kHalf, .emulated = true};
constexpr ScopeRules kWholeModel{.low = at::kHalf, .emulated = true, .casts_operators = false};
constexpr ScopeRules kWholeModelNative{
    .low = at::kHalf, .emulated = false, .casts_operators = false};

struct Case {
  const char* name;
  Treatment kind;
  bool matrix;
  bool dtype_argument;
  Operands seen;
  ScopeRules rules;
  Decision expected;
};

constexpr std::array kCases{
    Case{"LowCastsToTheLowType",
         Treatment::kLow,
         true,
         false,
         kFloats,
         kNative,
         {Plan::kCast, at::kHalf}},
    Case{"LowIsEmulatedWhereItIsSlow",
         Treatment::kLow,
         true,
         false,
         kFloats,
         kEmulated,
         {Plan::kEmulate, at::kHalf}},
    Case{"LowIsNotEmulatedOnADevice",
         Treatment::kLow,
         true,
         false,
         kOnDevice,
         kEmulated,
         {Plan::kCast, at::kHalf}},
    Case{"FloatCastsToFloat",
         Treatment::kFloat,
         false,
         false,
         kHalves,
         kNative,
         {Plan::kCast, at::kFloat}},
    Case{"FloatAsksForAFloatResult",
         Treatment::kFloat,
         false,
         true,
         kHalves,
         kNative,
         {Plan::kFloatResult, at::kFloat}},
    Case{"PromoteGoesToTheWidest",
         Treatment::kPromote,
         false,
         false,
         kMixed,
         kNative,
         {Plan::kCast, at::kFloat}},
    Case{"PromoteKeepsWhatAgrees",
         Treatment::kPromote,
         false,
         false,
         kHalves,
         kNative,
         {Plan::kCast, at::kHalf}},
    Case{"TwoLowTypesPromoteToFloat",
         Treatment::kPromote,
         false,
         false,
         kBothLow,
         kNative,
         {Plan::kCast, at::kFloat}},
    Case{"OtherOperatorsGetTheLowTypeWhereProductsAreEmulated",
         Treatment::kLow,
         false,
         false,
         kFloats,
         kEmulated,
         {Plan::kCast, at::kHalf}},
    Case{"AShieldedCallIsShielded",
         Treatment::kShield,
         true,
         false,
         kMixed,
         kNative,
         {Plan::kShield, at::kFloat}},
    Case{"AWholeModelShieldsNothing", Treatment::kShield, false, false, kHalves, kWholeModel, {}},
    Case{"AWholeModelEmulatesWhatAPolicyShields",
         Treatment::kShield,
         true,
         false,
         kHalves,
         kWholeModel,
         {Plan::kEmulate, at::kHalf}},
    Case{"WhatPassesPasses", Treatment::kPass, false, false, kMixed, kNative, {}},
    Case{"BannedIsRefused",
         Treatment::kBanned,
         false,
         false,
         kFloats,
         kNative,
         {Plan::kBan, at::kFloat}},
    Case{"BannedWithoutFloatsPasses", Treatment::kBanned, false, false, {}, kNative, {}},
    Case{"AFloat64ArgumentLeavesTheCallAlone",
         Treatment::kLow,
         true,
         false,
         kWithDouble,
         kNative,
         {}},
    Case{"IntegersLeaveTheCallAlone", Treatment::kLow, true, false, {}, kNative, {}},
    Case{"WritingKeepsTheWrittenType",
         Treatment::kFloat,
         false,
         false,
         kIntoHalf,
         kNative,
         {Plan::kCast, at::kHalf}},
    Case{"WritingIsNotEmulated",
         Treatment::kLow,
         true,
         false,
         kIntoHalf,
         kEmulated,
         {Plan::kCast, at::kHalf}},
    Case{"AWholeModelEmulatesItsMatrixOperators",
         Treatment::kLow,
         true,
         false,
         kHalves,
         kWholeModel,
         {Plan::kEmulate, at::kHalf}},
    Case{"AWholeModelEmulatesWhateverTheUserListed",
         Treatment::kPass,
         true,
         false,
         kHalves,
         kWholeModel,
         {Plan::kEmulate, at::kHalf}},
    Case{"AWholeModelNeverChangesATypeOfMixedCalls",
         Treatment::kLow,
         true,
         false,
         kMixed,
         kWholeModel,
         {}},
    Case{
        "AWholeModelLeavesFloatCallsAlone", Treatment::kLow, true, false, kFloats, kWholeModel, {}},
    Case{"AWholeModelLeavesOtherOperatorsAlone",
         Treatment::kFloat,
         false,
         false,
         kHalves,
         kWholeModel,
         {}},
    Case{"AWholeModelOnAFastMachineDoesNothing",
         Treatment::kLow,
         true,
         false,
         kHalves,
         kWholeModelNative,
         {}},
};

class Decide : public testing::TestWithParam<Case> {};

TEST_P(Decide, FollowsTheTable) {
  const Case& c = GetParam();
  const Decision got = decide(c.kind, c.matrix, c.dtype_argument, c.seen, c.rules);
  EXPECT_EQ(got.plan, c.expected.plan);
  EXPECT_EQ(got.target, c.expected.target);
}

INSTANTIATE_TEST_SUITE_P(Casting, Decide, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace mezzo::casting
