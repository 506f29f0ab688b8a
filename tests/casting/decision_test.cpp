#include "casting/decision.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace mezzo::casting {
namespace {

constexpr LowTypes kHalfOnly = LowTypes::of(at::kHalf);
constexpr LowTypes kBoth = kHalfOnly | LowTypes::of(at::kBFloat16);
constexpr Operands kFloats{.float32 = true};
constexpr Operands kHalves{.low = kHalfOnly};
constexpr Operands kMixed{.float32 = true, .low = kHalfOnly};
constexpr Operands kBothLow{.low = kBoth};
constexpr Operands kWithDouble{.float32 = true, .reach = Reach::kNone};
constexpr Operands kOnDevice{.float32 = true, .off_cpu = true};
constexpr Operands kIntoHalf{.float32 = true, .low = kHalfOnly, .written = at::kHalf};

constexpr ScopeRules kNative{.low = at::kHalf};
constexpr ScopeRules kEmulated{.low = at::kHalf, .emulated = true};
constexpr ScopeRules kDtypesStay{.low = at::kHalf, .emulated = true, .mode = Mode::kEmulationOnly};
constexpr ScopeRules kDtypesStayNative{
    .low = at::kHalf, .emulated = false, .mode = Mode::kEmulationOnly};

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
    Case{"WhereDtypesStayAScopeShieldsNothing",
         Treatment::kShield,
         false,
         false,
         kHalves,
         kDtypesStay,
         {}},
    Case{"WhereDtypesStayAScopeEmulatesWhatAPolicyShields",
         Treatment::kShield,
         true,
         false,
         kHalves,
         kDtypesStay,
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
    Case{"WhereDtypesStayAScopeEmulatesItsMatrixOperators",
         Treatment::kLow,
         true,
         false,
         kHalves,
         kDtypesStay,
         {Plan::kEmulate, at::kHalf}},
    Case{"WhereDtypesStayAScopeEmulatesWhateverTheUserListed",
         Treatment::kPass,
         true,
         false,
         kHalves,
         kDtypesStay,
         {Plan::kEmulate, at::kHalf}},
    Case{"WhereDtypesStayAScopeNeverChangesATypeOfMixedCalls",
         Treatment::kLow,
         true,
         false,
         kMixed,
         kDtypesStay,
         {}},
    Case{"WhereDtypesStayAScopeLeavesFloatCallsAlone",
         Treatment::kLow,
         true,
         false,
         kFloats,
         kDtypesStay,
         {}},
    Case{"WhereDtypesStayAScopeLeavesOtherOperatorsAlone",
         Treatment::kFloat,
         false,
         false,
         kHalves,
         kDtypesStay,
         {}},
    Case{"WhereDtypesStayAScopeOnAFastMachineDoesNothing",
         Treatment::kLow,
         true,
         false,
         kHalves,
         kDtypesStayNative,
         {}},
};

class DecideByTable : public testing::TestWithParam<Case> {};

TEST_P(DecideByTable, FollowsTheTable) {
  const Case& c = GetParam();
  const Decision got = decide(c.kind, {.matrix = c.matrix}, c.dtype_argument, c.seen, c.rules);
  EXPECT_EQ(got.plan, c.expected.plan);
  EXPECT_EQ(got.target, c.expected.target);
}

INSTANTIATE_TEST_SUITE_P(Casting, DecideByTable, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

constexpr Operands kSparse{.low = kHalfOnly, .reach = Reach::kSparse};
constexpr Operands kTooLarge{.low = kHalfOnly, .unheld = true};
constexpr Operands kTooLargeIntoHalf{.low = kHalfOnly, .unheld = true, .written = at::kHalf};
constexpr ScopeRules kInModel{.low = at::kHalf, .mode = Mode::kWholeModel};
constexpr ScopeRules kInModelEmulated{
    .low = at::kHalf, .emulated = true, .mode = Mode::kWholeModel};
constexpr Traits kProduct{.matrix = true};
constexpr Traits kFloatOnly{.lacks_low = true};
constexpr Traits kOneType{.one_type = true};
constexpr Traits kNorm{.float_statistics = true};

Decision decided(Treatment kind, const Traits& op, const Operands& seen, const ScopeRules& rules,
                 const Leads& leads = {}) {
  return decide(kind, op, /*has_dtype_argument=*/false, seen, rules, leads);
}

TEST(Decide, SparseOperandsAreComputedInFloat) {
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kSparse, kNative),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kSparse, kEmulated),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decided(Treatment::kPass, {}, kSparse, kNative), Decision{});
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kSparse, kInModel),
            (Decision{Plan::kInFloat, at::kHalf}));
}

TEST(Decide, AScalarThatIsNotHeldGivesFloatOrTheNearestValueInPlace) {
  for (const ScopeRules& rules : {kNative, kEmulated, kInModel, kInModelEmulated}) {
    EXPECT_EQ(decided(Treatment::kPass, {}, kTooLarge, rules), (Decision{Plan::kCast, at::kFloat}));
    EXPECT_EQ(decided(Treatment::kPass, {}, kTooLargeIntoHalf, rules),
              (Decision{Plan::kNearest, at::kFloat}));
  }
  EXPECT_EQ(decided(Treatment::kShield, {}, kTooLarge, kNative),
            (Decision{Plan::kShield, at::kFloat}))
      << "a policy that makes it neutral is obeyed";
}

TEST(Decide, ACallThatNeedsFloatInsideKeepsTheTypeOfItsResult) {
  const Operands halves{.low = kHalfOnly, .inside = Inside::kFloat};
  const Operands mixed{.float32 = true, .low = kHalfOnly, .inside = Inside::kFloat};
  const Operands into_half{.low = kHalfOnly, .inside = Inside::kFloat, .written = at::kHalf};
  const Operands floats{.float32 = true, .inside = Inside::kFloat};
  for (const ScopeRules& rules : {kNative, kEmulated, kInModel, kInModelEmulated}) {
    for (const Treatment kind : {Treatment::kPass, Treatment::kPromote}) {
      EXPECT_EQ(decided(kind, {}, halves, rules), (Decision{Plan::kInFloat, at::kHalf}));
      EXPECT_EQ(decided(kind, {}, mixed, rules), (Decision{Plan::kCast, at::kFloat}));
      EXPECT_EQ(decided(kind, {}, into_half, rules), (Decision{Plan::kCast, at::kFloat}));
      const Decision of_floats = decided(kind, {}, floats, rules);
      EXPECT_TRUE(of_floats.plan == Plan::kPass || nothing_to_cast(floats, of_floats));
    }
    EXPECT_EQ(decided(Treatment::kLow, kProduct, halves, rules),
              (Decision{Plan::kEmulate, at::kHalf}))
        << "a sum of products, whatever the processor can do";
  }
  EXPECT_EQ(decided(Treatment::kShield, {}, halves, kNative), (Decision{Plan::kShield, at::kFloat}))
      << "a policy that makes it neutral is obeyed";
  EXPECT_EQ(decided(Treatment::kShield, {.alone = true}, halves, kNative),
            (Decision{Plan::kInFloat, at::kHalf}))
      << "neutral by the table";
}

TEST(Decide, ASteepOperatorOfTheClassFloatGivesFloatAndTakesIt) {
  const Operands halves{.low = kHalfOnly, .inside = Inside::kFloat};
  EXPECT_EQ(decide(Treatment::kFloat, {}, /*has_dtype_argument=*/true, halves, kNative),
            (Decision{Plan::kCast, at::kFloat}))
      << "its derivative reads what it was given";
  EXPECT_EQ(decided(Treatment::kFloat, {}, halves, kInModel),
            (Decision{Plan::kInFloat, at::kHalf}));
  const Operands kept{.low = kHalfOnly, .inside = Inside::kFloatKept};
  EXPECT_EQ(decided(Treatment::kFloat, {}, kept, kInModel), (Decision{Plan::kCast, at::kFloat}));
}

TEST(Decide, ABatchNormOfMixedTypesHasTheTypeOfItsInput) {
  constexpr Traits kBatchNorm{.batch_norm = true};
  const Operands mixed{.float32 = true, .low = kHalfOnly};
  const Leads float_input{.first = at::kFloat, .low_later = true};
  const Leads half_input{.first = at::kHalf, .float_later = true};
  const Leads half_input_and_scale{.first = at::kHalf, .float_later = true, .low_later = true};
  for (const ScopeRules& rules : {kNative, kInModel}) {
    EXPECT_EQ(decided(Treatment::kPass, kBatchNorm, mixed, rules, float_input),
              (Decision{Plan::kInFloat, at::kFloat}));
    EXPECT_EQ(decided(Treatment::kPass, kBatchNorm, mixed, rules, half_input), Decision{})
        << "LibTorch takes these";
    EXPECT_EQ(decided(Treatment::kPass, kBatchNorm, mixed, rules, half_input_and_scale),
              (Decision{Plan::kInFloat, at::kHalf}));
  }
}

TEST(Decide, OperatorsWithoutALowKernelWriteThroughFloat) {
  EXPECT_EQ(decided(Treatment::kFloat, kFloatOnly, kIntoHalf, kNative),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decide(Treatment::kFloat, kFloatOnly, /*has_dtype_argument=*/true, kHalves, kNative),
            (Decision{Plan::kCast, at::kFloat}))
      << "a dtype argument does not help where the kernel fails before it";
}

TEST(Decide, InALowModelProductsTakeTheTypeOfTheirWeight) {
  const Leads half{.weight = at::kHalf, .first = at::kFloat};
  const Leads wide{.weight = at::kFloat, .first = at::kHalf};
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kMixed, kInModel, half),
            (Decision{Plan::kCast, at::kHalf}));
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kMixed, kInModelEmulated, half),
            (Decision{Plan::kEmulate, at::kHalf}));
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kMixed, kInModelEmulated, wide),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kMixed, kInModel),
            (Decision{Plan::kCast, at::kFloat}))
      << "without a weight they promote";
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kHalves, kInModel), Decision{});
  EXPECT_EQ(decided(Treatment::kLow, kProduct, kFloats, kInModelEmulated), Decision{});
}

TEST(Decide, InALowModelOnlyWhatWouldFailIsMended) {
  EXPECT_EQ(decided(Treatment::kFloat, kFloatOnly, kHalves, kInModel),
            (Decision{Plan::kInFloat, at::kHalf}));
  EXPECT_EQ(decided(Treatment::kFloat, kFloatOnly, kMixed, kInModel),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decided(Treatment::kPromote, kOneType, kMixed, kInModel),
            (Decision{Plan::kCast, at::kFloat}));
  EXPECT_EQ(decided(Treatment::kPromote, kOneType, kIntoHalf, kInModel),
            (Decision{Plan::kCast, at::kHalf}));
  EXPECT_EQ(decided(Treatment::kPromote, kOneType, kHalves, kInModel), Decision{});
  EXPECT_EQ(decided(Treatment::kFloat, {}, kMixed, kInModel), Decision{});
  EXPECT_EQ(decided(Treatment::kFloat, {}, kHalves, kInModel), Decision{}) << "softmax stays low";
}

TEST(Decide, InALowModelNormsComputeInFloatAndKeepTheTypeOfTheirInput) {
  const Leads half{.first = at::kHalf};
  EXPECT_EQ(decided(Treatment::kFloat, kNorm, kHalves, kInModel, half),
            (Decision{Plan::kInFloat, at::kHalf}));
  EXPECT_EQ(decided(Treatment::kFloat, kNorm, kMixed, kInModel, half),
            (Decision{Plan::kInFloat, at::kHalf}));
}

}  // namespace
}  // namespace mezzo::casting
