// Operators that ONNX Runtime joins wrongly are not left for it to join.
#include <gmock/gmock.h>

#include "convert/decide/profile.h"
#include "decision_on.h"
#include "joined_models.h"

namespace mezzo::convert {
namespace {

using Orders = std::vector<std::vector<std::int64_t>>;
using testing::HasSubstr;

TEST(JoinedOperators, TransposesThatMoveABatchToAProductWithConstantsStayFloat) {
  for (const Orders& orders :
       {Orders{{1, 0, 2}}, {{1, 2, 0}}, {{1, 2, 0, 3}}, {{1, 2, 3, 0}}, {{1, 2, 3, 0, 4}}}) {
    const Message made = moved_batch(orders);
    EXPECT_FALSE(decision_on(made, "t0").low) << testing::PrintToString(orders);
    EXPECT_THAT(decision_on(made, "t0").why, HasSubstr("ONNX Runtime crashes"));
    for (const char* product : {"first", "y"}) EXPECT_TRUE(decision_on(made, product).low);
  }
}

TEST(JoinedOperators, OtherTransposesAreFree) {
  for (const Orders& orders : {Orders{{0, 2, 1}}, {{2, 1, 0}}, {{0, 2, 1, 3}}, {{1, 0, 2, 3}}})
    EXPECT_TRUE(decision_on(moved_batch(orders), "t0").low) << testing::PrintToString(orders);
}

TEST(JoinedOperators, SeveralTransposesCountTogetherWhateverIsPassedBetweenThem) {
  const Orders together{{1, 0, 2}, {0, 2, 1}};
  for (const char* between : {"", "Identity", "Dropout", "Mul", "Reshape", "Relu"}) {
    const Message made = moved_batch(together, between);
    EXPECT_FALSE(decision_on(made, "t0").low) << between;
    EXPECT_FALSE(decision_on(made, "t1").low) << between;
  }
  EXPECT_TRUE(decision_on(moved_batch(together, "MatMul"), "t1").low);
  EXPECT_TRUE(decision_on(moved_batch({{2, 1, 0}, {0, 2, 1}}), "t1").low);
}

TEST(JoinedOperators, AnotherTypeAndAnotherEngineAreFree) {
  const Message made = moved_batch({{1, 0, 2}});
  EXPECT_TRUE(decision_on(made, "t0", {}, "bfloat16").low);
  EXPECT_FALSE(decision_on(norm_behind("MatMul", ""), "n").low);
  EXPECT_TRUE(decision_on(norm_behind("MatMul", ""), "n", {}, "bfloat16").low);
}

// ONNX Runtime is where results for other engines are tried.
TEST(JoinedOperators, AreAvoidedInEveryProfileButThatOfTheStandard) {
  for (const char* name : {"portable", "ort", "ort-cpu", "ort-cuda", "trt", "openvino"})
    EXPECT_TRUE(find_profile(name)->avoids_joins) << name;
  EXPECT_FALSE(find_profile("spec")->avoids_joins);
}

TEST(JoinedOperators, BatchNormsBehindAMatMulStayFloat) {
  for (const char* way : {"", "Identity", "Transpose", "Reshape"}) {
    const Message made = norm_behind("MatMul", way);
    EXPECT_FALSE(decision_on(made, "n").low) << way;
    EXPECT_TRUE(decision_on(made, "m").low) << way;
  }
  EXPECT_TRUE(decision_on(norm_behind("Gemm", ""), "n").low);
  EXPECT_TRUE(decision_on(norm_behind("MatMul", "Relu"), "n").low);
}

TEST(JoinedOperators, BatchNormsInABranchStayFloatBehindAMatMulOutside) {
  GraphBuilder g, then, otherwise;
  g.input("x", Element::kFloat, {4, 4}).input("c", Element::kBool, {});
  g.initializer(identity_weights("w", 4)).node("MatMul", {"x", "w"}, {"m"});
  for (const char* name : {"scale", "bias", "mean", "var"}) g.weight(name, {1, 2, 3, 4}, {4});
  then.node("BatchNormalization", {"m", "scale", "bias", "mean", "var"}, {"n"});
  otherwise.node("Relu", {"m"}, {"e"});
  g.node("If", {"c"}, {"b"},
         body_attribute("then_branch", then.output("n", Element::kFloat, {4, 4}).take()),
         body_attribute("else_branch", otherwise.output("e", Element::kFloat, {4, 4}).take()));
  const Message made = model(g.node("MatMul", {"b", "w"}, {"y"}).output("y").take());
  EXPECT_FALSE(decision_on(made, "b/then_branch/n").low);
  EXPECT_TRUE(decision_on(made, "m").low);
}

TEST(JoinedOperators, TheScaleOfANormInPiecesHasTheTypeThatItReads) {
  for (const char* between : {"", "Identity", "Mul"}) {
    const Message made = norm_in_pieces(17, between);
    EXPECT_TRUE(decision_on(made, "m").low);
    EXPECT_TRUE(decision_on(made, "scaled").low);
  }
}

TEST(JoinedOperators, WhatMayBeACopyHasTheTypeOfWhatItMayCopy) {
  const Message made = norm_in_pieces(17, "Expand");
  for (const char* node : {"m", "copy", "scaled"}) EXPECT_TRUE(decision_on(made, node).low) << node;
}

TEST(JoinedOperators, FunctionsAreLookedInto) {
  const Message behind = norm_and_function(false);
  EXPECT_TRUE(decision_on(behind, "r/function/made").low);
  EXPECT_TRUE(decision_on(behind, "scaled").low);
  const Message within = norm_and_function(true);
  EXPECT_TRUE(decision_on(within, "m").low);
  EXPECT_TRUE(decision_on(within, "r/function/scaled").low);
}

TEST(JoinedOperators, ANormInPiecesIsNotJoinedWhereABodyIsBetweenItAndItsCast) {
  const Message within = norm_and_body(true);
  EXPECT_TRUE(decision_on(within, "m").low);
  EXPECT_FALSE(decision_on(within, "r/then_branch/scaled").low);
  EXPECT_TRUE(decision_on(within, "r/then_branch/z").low);
  const Message behind = norm_and_body(false);
  EXPECT_TRUE(decision_on(behind, "r/then_branch/b").low);
  EXPECT_FALSE(decision_on(behind, "scaled").low);
  EXPECT_TRUE(decision_on(behind, "z").low);
}

TEST(JoinedOperators, ANormInPiecesIsNotJoinedWhereOthersReadWhatItReads) {
  const Message made = norm_in_pieces(17, "", true);
  EXPECT_TRUE(decision_on(made, "m").low);
  EXPECT_FALSE(decision_on(made, "scaled").low);
  EXPECT_TRUE(decision_on(made, "z").low);
  EXPECT_THAT(decision_on(made, "scaled").why, HasSubstr("two types"));
  const Message followed = norm_in_pieces(17, "", true, true);
  EXPECT_FALSE(decision_on(followed, "z").low);
  EXPECT_TRUE(decision_on(followed, "d").low);
}

TEST(JoinedOperators, ANormInPiecesOfASumStaysFloatUpToItsScale) {
  const Message made = norm_in_pieces(17, "Sigmoid");
  for (const char* node : {"copy", "scaled"}) EXPECT_FALSE(decision_on(made, node).low) << node;
}

}  // namespace
}  // namespace mezzo::convert
