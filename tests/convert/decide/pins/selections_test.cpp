// Values that are chosen by their size keep the digits that the last product gave them.
#include <gmock/gmock.h>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

const std::vector<std::int64_t> kRow{1, 4};

GraphBuilder head() {
  GraphBuilder g;
  g.input("x", Element::kFloat, kRow).weight("w", std::vector<float>(16, 0.5F), {4, 4});
  g.weight("half", {0.5F}, {}).weight("grid", {0, 8, 16, 24}, {4});
  g.initializer(tensor<std::int64_t>("k", Element::kInt64, {1}, {2}));
  g.node("MatMul", {"x", "w"}, {"m"});
  return g;
}

TEST(Selections, ScoresStayFloatFromTheirProductToTheChoice) {
  GraphBuilder g = head();
  g.node("Mul", {"m", "half"}, {"scaled"}).node("Sigmoid", {"scaled"}, {"score"});
  g.node("TopK", {"score", "k"}, {"best", "which"}).node("MatMul", {"m", "w"}, {"y"});
  const Message made = model(g.output("which", Element::kInt64, {1, 2}).output("y").take());
  for (const char* node : {"scaled", "score", "best"}) {
    EXPECT_FALSE(decision_on(made, node).low) << node;
  }
  EXPECT_THAT(decision_on(made, "score").why, HasSubstr("decides a choice"));
  EXPECT_TRUE(decision_on(made, "m").low);
  EXPECT_TRUE(decision_on(made, "y").low);
}

TEST(Selections, MovingAProductsResultCostsNoCast) {
  GraphBuilder g = head();
  g.node("Transpose", {"m"}, {"t"}).node("ArgMax", {"t"}, {"which"});
  g.node("MatMul", {"t", "w"}, {"y"});
  const Message made = model(g.output("which", Element::kInt64, {1, 1}).output("y").take());
  EXPECT_TRUE(decision_on(made, "t").low);
  EXPECT_TRUE(decision_on(made, "which").low);
}

TEST(Selections, WhatMovesKeptScoresStaysFloatThoughALowReaderIsNear) {
  GraphBuilder g = head();
  g.node("Sigmoid", {"m"}, {"s"}).node("Transpose", {"s"}, {"t"});
  g.node("ArgMax", {"t"}, {"which"}).node("MatMul", {"t", "w"}, {"y"});
  const Message made = model(g.output("which", Element::kInt64, {1, 1}).output("y").take());
  EXPECT_FALSE(decision_on(made, "t").low);
  EXPECT_FALSE(decision_on(made, "which").low);
  EXPECT_TRUE(decision_on(made, "y").low);
}

TEST(Selections, BoxesThatAreDecodedForSuppressionStayFloat) {
  GraphBuilder g = head();
  const std::vector<std::int64_t> one{1};
  g.initializer(tensor<std::int64_t>("three", Element::kInt64, {3}, {1, 1, 4}));
  g.node("Sigmoid", {"m"}, {"s"}).node("Add", {"s", "grid"}, {"boxes"});
  g.node("Reshape", {"boxes", "three"}, {"b"}).node("Reshape", {"m", "three"}, {"scores"});
  g.node("NonMaxSuppression", {"b", "scores", "k"}, {"chosen"});
  const Message made = model(g.output("chosen", Element::kInt64, {-1, 3}).take());
  for (const char* node : {"s", "boxes", "b"}) EXPECT_FALSE(decision_on(made, node).low) << node;
}

TEST(Selections, AThresholdWhoseHitsAreCountedComparesInFloat) {
  GraphBuilder g = head();
  g.node("Sigmoid", {"m"}, {"s"}).node("Greater", {"s", "half"}, {"hit"});
  g.node("NonZero", {"hit"}, {"where"});
  const Message made = model(g.output("where", Element::kInt64, {2, -1}).take());
  EXPECT_FALSE(decision_on(made, "s").low);
  EXPECT_FALSE(decision_on(made, "hit").low);
}

TEST(Selections, AnActivationThatComparesStaysWithItsNeighbours) {
  GraphBuilder g = head();
  g.weight("zero", {0}, {}).node("Greater", {"m", "zero"}, {"up"});
  g.node("Mul", {"m", "half"}, {"small"}).node("Where", {"up", "m", "small"}, {"a"});
  g.node("MatMul", {"a", "w"}, {"y"});
  const Message made = model(g.output("y").take());
  for (const char* node : {"up", "small", "a"}) EXPECT_TRUE(decision_on(made, node).low) << node;
}

// x == MaxPool(x) finds peaks: false everywhere if only one side is rounded.
TEST(Selections, PeaksAreComparedInTheTypeOfWhatTheyStandIn) {
  for (const bool is_float : {false, true}) {
    const std::vector<std::int64_t> image{1, 1, 4, 4};
    GraphBuilder g;
    g.input("x", Element::kFloat, image).weight("w", {0.5F}, {1, 1, 1, 1});
    g.node("Conv", {"x", "w"}, {"c"}).node(is_float ? "Softmax" : "Relu", {"c"}, {"heat"});
    g.node("MaxPool", {"heat"}, {"pooled"}, integers_attribute("kernel_shape", {3, 3}),
           integers_attribute("pads", {1, 1, 1, 1}));
    g.node("Conv", {"pooled", "w"}, {"d"}).node("Conv", {"heat", "w"}, {"e"});
    g.node("Equal", {"heat", "pooled"}, {"peak"});
    const Message made =
        model(g.output("peak", Element::kBool, image).output("d").output("e").take());
    EXPECT_EQ(decision_on(made, "pooled").low, !is_float);
    EXPECT_EQ(decision_on(made, "peak").low, !is_float);
  }
}

TEST(Selections, ABoundThatWasChosenFromTheValuesItCutsHasTheirType) {
  GraphBuilder g = head();
  g.node("Softmax", {"m"}, {"p"}).node("TopK", {"p", "k"}, {"best", "which"});
  g.node("ReduceMin", {"best"}, {"least"}).node("MatMul", {"least", "w"}, {"y"});
  g.node("MatMul", {"p", "w"}, {"z"}).node("Less", {"p", "least"}, {"cut"});
  const Message made = model(g.output("cut", Element::kBool, kRow).output("y").output("z").take());
  for (const char* node : {"p", "best", "least", "cut"}) {
    EXPECT_FALSE(decision_on(made, node).low) << node;
  }
}

TEST(Selections, AreFoundInBodiesToo) {
  GraphBuilder body("body");
  body.input("i", Element::kInt64, {}).input("go", Element::kBool, {});
  body.input("h", Element::kFloat, kRow);
  body.node("MatMul", {"h", "w"}, {"h2"}).node("Sigmoid", {"h2"}, {"s"});
  body.node("ArgMax", {"s"}, {"token"}, attribute("axis", 1)).node("Identity", {"go"}, {"go2"});
  body.output("go2", Element::kBool, {}).output("h2", Element::kFloat, kRow);
  body.output("token", Element::kInt64, {1, 1});
  GraphBuilder g;
  g.input("x", Element::kFloat, kRow).input("n", Element::kInt64, {});
  g.weight("w", std::vector<float>(16, 0.5F), {4, 4});
  g.named("loop").node("Loop", {"n", "", "x"}, {"y", "tokens"},
                       body_attribute("body", body.take()));
  const Message made =
      model(g.output("y", Element::kFloat, kRow).output("tokens", Element::kInt64, {-1}).take());
  EXPECT_FALSE(decision_on(made, "y/body/s").low);
}

// A homography of a grid that a layer moved.
Message warped(std::int64_t coordinates) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 4, 4});
  const auto n = static_cast<std::size_t>(coordinates);
  g.weight("w", std::vector<float>(n, 0.5F), {coordinates, 1, 1, 1})
      .weight("h", std::vector<float>(n * 2, 0.1F), {coordinates, 2})
      .weight("grid", std::vector<float>(n * 16, 1), {1, coordinates, 4, 4});
  g.node("Conv", {"x", "w"}, {"flow"}).node("Add", {"flow", "grid"}, {"places"});
  g.node("Transpose", {"places"}, {"t"}, integers_attribute("perm", {0, 2, 3, 1}));
  g.node("MatMul", {"t", "h"}, {"turned"}).node("GridSample", {"x", "turned"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 1, 4, 4}).take());
}

TEST(Selections, CoordinatesStayFloatThroughTheirTransform) {
  for (const std::int64_t coordinates : {2, 3, 4}) {
    const Message made = warped(coordinates);
    for (const char* node : {"places", "t", "turned"})
      EXPECT_FALSE(decision_on(made, node).low) << coordinates << ' ' << node;
    EXPECT_TRUE(decision_on(made, "flow").low);
  }
}

TEST(Selections, LayersBeforeCoordinatesGoLow) {
  EXPECT_TRUE(decision_on(warped(32), "turned").low);
}

}  // namespace
}  // namespace mezzo::convert
