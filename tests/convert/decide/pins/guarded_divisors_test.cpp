// Small numbers that keep divisors from zero, on all ways to the divisor.
#include <gmock/gmock.h>

#include <functional>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

// x / max(|x|, 1e-12), with something between the bound and the division.
Message normalised(const char* guard, const std::function<std::string(GraphBuilder&)>& between,
                   float epsilon = 1e-12F) {
  GraphBuilder g;
  g.input("x").weight("w").weight("epsilon", {epsilon}, {}).weight("root", {-0.5F}, {});
  g.initializer(tensor<std::int64_t>("shape", Element::kInt64, {2}, {2, 2}));
  g.initializer(tensor<std::int64_t>("one", Element::kInt64, {1}, {1}));
  g.input("is_zero", Element::kBool, {2, 1});
  g.node("MatMul", {"x", "w"}, {"first"})
      .node("MatMul", {"first", "w"}, {"a"})
      .node("ReduceL2", {"a"}, {"n"}, integers_attribute("axes", {1}));
  const bool chooses = std::string(guard) == "Where";
  g.node(guard,
         chooses ? std::vector<std::string>{"is_zero", "epsilon", "n"}
                 : std::vector<std::string>{"n", "epsilon"},
         {"g"});
  const std::string divisor = between(g);
  if (divisor == "inverse") {
    g.node("Mul", {"a", "inverse"}, {"d"});
  } else {
    g.node("Div", {"a", divisor}, {"d"});
  }
  return model(g.node("MatMul", {"d", "w"}, {"y"}).output("y").take());
}

const std::map<std::string, std::function<std::string(GraphBuilder&)>> kBetween = {
    {"nothing", [](GraphBuilder&) { return "g"; }},
    {"Expand",
     [](GraphBuilder& g) {
       g.node("Expand", {"g", "shape"}, {"e"});
       return "e";
     }},
    {"Transpose twice",
     [](GraphBuilder& g) {
       g.node("Transpose", {"g"}, {"t"}).node("Transpose", {"t"}, {"e"});
       return "e";
     }},
    {"Unsqueeze and Squeeze",
     [](GraphBuilder& g) {
       g.node("Unsqueeze", {"g", "one"}, {"u"}).node("Squeeze", {"u", "one"}, {"e"});
       return "e";
     }},
    {"Reciprocal",
     [](GraphBuilder& g) {
       g.node("Reciprocal", {"g"}, {"inverse"});
       return "inverse";
     }},
    {"Reciprocal and Expand",
     [](GraphBuilder& g) {
       g.node("Reciprocal", {"g"}, {"r"}).node("Expand", {"r", "shape"}, {"inverse"});
       return "inverse";
     }},
    {"ReduceSum and Reciprocal, expanded",
     [](GraphBuilder& g) {
       g.node("ReduceSum", {"g", "one"}, {"s"}).node("Reciprocal", {"s"}, {"r"});
       g.node("Expand", {"r", "shape"}, {"inverse"});
       return "inverse";
     }},
    {"Trilu and a sum of the halves",
     [](GraphBuilder& g) {
       g.node("Trilu", {"g"}, {"t"}).node("Sub", {"g", "t"}, {"rest"});
       g.node("Add", {"t", "rest"}, {"again"}).node("Reciprocal", {"again"}, {"r"});
       g.node("Expand", {"r", "shape"}, {"inverse"});
       return "inverse";
     }},
    {"another factor",
     [](GraphBuilder& g) {
       g.node("Sigmoid", {"g"}, {"f"}).node("Mul", {"g", "f"}, {"m"});
       g.node("Reciprocal", {"m"}, {"r"}).node("Expand", {"r", "shape"}, {"inverse"});
       return "inverse";
     }},
    {"both outputs of Split",
     [](GraphBuilder& g) {
       g.initializer(tensor<std::int64_t>("halves", Element::kInt64, {2}, {1, 1}));
       g.node("Split", {"g", "halves"}, {"upper", "lower"});
       g.node("Concat", {"lower", "upper"}, {"c"}, attribute("axis", std::int64_t{0}));
       g.node("Reciprocal", {"c"}, {"r"}).node("Expand", {"r", "shape"}, {"inverse"});
       return "inverse";
     }},
    {"Pow",
     [](GraphBuilder& g) {
       g.node("Pow", {"g", "root"}, {"p"}).node("Expand", {"p", "shape"}, {"inverse"});
       return "inverse";
     }},
};

TEST(GuardedDivisors, StayFloatUpToWhatNeedsThem) {
  for (const char* guard : {"Add", "Max", "Clip", "Where"}) {
    for (const auto& [name, between] : kBetween) {
      const Message made = normalised(guard, between);
      Document document(bytes_of(made));
      const Graph graph(document);
      bool is_behind = false;
      for (const Node& node : graph.nodes) {
        const std::string out(graph.value(node.outputs[0]).name);
        is_behind = is_behind || out == "g";
        if (is_behind && out != "y") {
          EXPECT_FALSE(decision_on(made, out).low) << guard << ", " << name << ": " << out;
        }
      }
      EXPECT_TRUE(decision_on(made, "a").low);
      EXPECT_TRUE(decision_on(made, "y").low);
    }
  }
}

// -min(-|x|, -1e-12).
TEST(GuardedDivisors, StayFloatBelowANegativeBound) {
  GraphBuilder g;
  g.input("x").weight("w").weight("bound", {-1e-12F}, {});
  g.initializer(tensor<std::int64_t>("shape", Element::kInt64, {2}, {2, 2}));
  g.node("MatMul", {"x", "w"}, {"first"}).node("MatMul", {"first", "w"}, {"a"});
  g.node("ReduceL2", {"a"}, {"n"}, integers_attribute("axes", {1})).node("Neg", {"n"}, {"minus"});
  g.node("Min", {"minus", "bound"}, {"g"}).node("Neg", {"g"}, {"m"});
  g.node("Reciprocal", {"m"}, {"r"}).node("Expand", {"r", "shape"}, {"e"});
  g.node("Mul", {"a", "e"}, {"d"});
  const Message made = model(g.node("MatMul", {"d", "w"}, {"y"}).output("y").take());
  for (const char* node : {"g", "m", "r", "e", "d"})
    EXPECT_FALSE(decision_on(made, node).low) << node;
  EXPECT_TRUE(decision_on(made, "y").low);
}

TEST(GuardedDivisors, AreLeftAloneWhereTheTypeHasTheNumber) {
  EXPECT_TRUE(decision_on(normalised("Max", kBetween.at("Expand")), "e", {}, "bfloat16").low);
}

TEST(Masks, OfTheLowestNumberStayFloatThroughWhatMovesThem) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 4}).weight("w", std::vector<float>(16, 1), {4, 4});
  g.weight("mask", std::vector<float>(16, -3.4e38F), {4, 4});
  g.initializer(tensor<std::int64_t>("zero", Element::kInt64, {1}, {0}));
  g.initializer(tensor<std::int64_t>("four", Element::kInt64, {1}, {4}));
  g.node("MatMul", {"x", "w"}, {"a"})
      .node("Trilu", {"mask"}, {"t"}, attribute("upper", std::int64_t{1}));
  g.node("Slice", {"t", "zero", "four", "zero"}, {"s"}).node("Unsqueeze", {"s", "zero"}, {"u"});
  g.node("Add", {"a", "u"}, {"m"}).node("Identity", {"m"}, {"i"}).node("Sigmoid", {"i"}, {"p"});
  const Message made =
      model(g.node("MatMul", {"p", "w"}, {"y"}).output("y", Element::kFloat, {1, 4, 4}).take());
  for (const char* node : {"t", "s", "u", "m", "i", "p"})
    EXPECT_FALSE(decision_on(made, node).low) << node;
  EXPECT_THAT(decision_on(made, "m").why, HasSubstr("reaches 3.4e+38"));
  EXPECT_TRUE(decision_on(made, "a").low);
}

}  // namespace
}  // namespace mezzo::convert
