// The inputs of logarithms, and differences of neighbouring samples.
#include <gmock/gmock.h>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

constexpr const char* kLogarithm = "a logarithm reads it";
constexpr const char* kDifference = "a signal less its own neighbours";

// log(guard(x w)), as front ends of speech models end.
Message features(const char* guard, float bound) {
  GraphBuilder g;
  g.input("x").weight("w").weight("bound", {bound}, {});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Transpose", {"m"}, {"t"});
  g.node(guard, {"t", "bound"}, {"g"}).node("Log", {"g"}, {"l"});
  return model(g.node("MatMul", {"l", "w"}, {"y"}).output("y").take());
}

TEST(Logarithms, ReadWhatWasComputedInFloat) {
  for (const char* guard : {"Add", "Max", "Clip"}) {
    const Message made = features(guard, 1e-10F);
    for (const char* node : {"m", "t", "g", "l"})
      EXPECT_FALSE(decision_on(made, node).low) << guard << ' ' << node;
    EXPECT_THAT(decision_on(made, "m").why, HasSubstr(kLogarithm)) << guard;
    EXPECT_TRUE(decision_on(made, "y").low);
  }
}

TEST(Logarithms, ReadLowProductsBehindAGuardInTheNormalRange) {
  for (const char* guard : {"Add", "Max", "Clip"})
    EXPECT_TRUE(decision_on(features(guard, 1e-3F), "m").low) << guard;
}

TEST(Logarithms, ReadLowProductsWhereTheTypeHasFloatsRange) {
  EXPECT_TRUE(decision_on(features("Clip", 1e-10F), "m", {}, "bfloat16").low);
}

TEST(Logarithms, KnowTheBoundsOfOldClips) {
  const auto clipped = [](float bound) {
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"m"});
    g.node("Clip", {"m"}, {"c"}, float_attribute("min", bound)).node("Log", {"c"}, {"y"});
    return model(g.output("y").take(), 9, 6);
  };
  EXPECT_FALSE(decision_on(clipped(1e-10F), "m").low);
  EXPECT_TRUE(decision_on(clipped(1e-3F), "m").low);
}

TEST(Logarithms, LookIntoBodies) {
  const auto branch = [](const char* attribute, const char* out) {
    GraphBuilder g(attribute);
    g.node("MatMul", {"x", "w"}, {out}).output(out);
    return body_attribute(attribute, g.take());
  };
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w");
  g.node("If", {"flag"}, {"r"}, branch("then_branch", "t"), branch("else_branch", "e"));
  g.node("Log", {"r"}, {"y"});
  const Message made = model(g.output("y").take());
  EXPECT_FALSE(decision_on(made, "r/then_branch/t").low);
  EXPECT_FALSE(decision_on(made, "r/else_branch/e").low);
}

// x[1:] - 0.97 x[:-1], of what the model is given or of a product.
Message emphasised(bool of_a_product) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 8}).weight("w", std::vector<float>(64, 0.5F), {8, 8});
  g.weight("factor", {0.97F}, {}).weight("square", std::vector<float>(49, 0.5F), {7, 7});
  g.initializer(tensor<std::int64_t>("zero", Element::kInt64, {1}, {0}));
  g.initializer(tensor<std::int64_t>("one", Element::kInt64, {1}, {1}));
  g.initializer(tensor<std::int64_t>("seven", Element::kInt64, {1}, {7}));
  g.initializer(tensor<std::int64_t>("eight", Element::kInt64, {1}, {8}));
  if (of_a_product) g.node("MatMul", {"x", "w"}, {"m"});
  const char* signal = of_a_product ? "m" : "x";
  g.node("Slice", {signal, "one", "eight", "one"}, {"now"});
  g.node("Slice", {signal, "zero", "seven", "one"}, {"past"});
  g.node("Mul", {"factor", "past"}, {"scaled"}).node("Sub", {"now", "scaled"}, {"d"});
  g.node("MatMul", {"d", "square"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 7}).take());
}

TEST(Differences, OfNeighbouringSamplesAreTakenInFloat) {
  const Message made = emphasised(false);
  for (const char* node : {"now", "past", "scaled", "d"})
    EXPECT_FALSE(decision_on(made, node).low) << node;
  EXPECT_THAT(decision_on(made, "d").why, HasSubstr(kDifference));
  EXPECT_TRUE(decision_on(made, "y").low);
}

// The same by a convolution whose weights nearly cancel.
TEST(Differences, ByConvolutionsAreTakenInFloat) {
  const auto filtered = [](std::vector<float> weights, bool of_a_product) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 1, 8}).weight("filter", std::move(weights), {2, 1, 2});
    g.weight("w", std::vector<float>(64, 0.5F), {8, 8});
    g.weight("v", std::vector<float>(49, 0.5F), {7, 7});
    if (of_a_product) g.node("MatMul", {"x", "w"}, {"m"});
    g.node("Conv", {of_a_product ? "m" : "x", "filter"}, {"d"}).node("MatMul", {"d", "v"}, {"y"});
    return model(g.output("y", Element::kFloat, {1, 2, 7}).take());
  };
  const Message made = filtered({-1, 1, -0.97F, 1}, false);
  EXPECT_FALSE(decision_on(made, "d").low);
  EXPECT_THAT(decision_on(made, "d").why, HasSubstr(kDifference));
  EXPECT_TRUE(decision_on(made, "y").low);
  EXPECT_TRUE(decision_on(filtered({-1, 1, 0.5F, 1}, false), "d").low);
  EXPECT_TRUE(decision_on(filtered({-1, 1, -0.97F, 1}, true), "d").low);
}

// The size of a box: (anchor + right) - (anchor - left).
TEST(Differences, OfSumsThatShareANumberAreTakenInFloat) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").weight("anchor", {0.5F, 80.5F, 160.5F, 560.5F}, {2, 2});
  g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"x", "w2"}, {"b"});
  g.node("Add", {"anchor", "a"}, {"high"}).node("Sub", {"anchor", "b"}, {"below"});
  g.node("Transpose", {"high"}, {"one"}).node("Transpose", {"below"}, {"other"});
  g.node("Sub", {"one", "other"}, {"size"});
  const Message made = model(g.node("MatMul", {"size", "w"}, {"y"}).output("y").take());
  for (const char* node : {"high", "below", "one", "other", "size"})
    EXPECT_FALSE(decision_on(made, node).low) << node;
  EXPECT_TRUE(decision_on(made, "a").low);
  EXPECT_TRUE(decision_on(made, "y").low);
}

TEST(Differences, OfProductsGoLowAsTheProductsDo) {
  EXPECT_TRUE(decision_on(emphasised(true), "d").low);
}

}  // namespace
}  // namespace mezzo::convert
