// Differences of numbers near each other.
#include <gmock/gmock.h>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

// log(c / (1 - c)) of a sigmoid, bounded, as decoders of boxes refine their references.
Message inverse_sigmoid(const char* subtraction) {
  GraphBuilder g;
  g.input("x").weight("w").weight("one", {1}, {}).weight("low", {1e-3F}, {});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Sigmoid", {"m"}, {"c"});
  if (std::string(subtraction) == "Sub") {
    g.node("Sub", {"one", "c"}, {"r"});
  } else {
    g.node("Neg", {"c"}, {"n"}).node("Add", {"n", "one"}, {"r"});
  }
  g.node("Max", {"r", "low"}, {"b"}).node("Div", {"c", "b"}, {"q"}).node("Log", {"q"}, {"l"});
  return model(g.node("MatMul", {"l", "w"}, {"y"}).output("y").take());
}

TEST(Differences, BeforeALogarithmAreFloat) {
  for (const char* subtraction : {"Sub", "Add"}) {
    for (const char* dtype : {"float16", "bfloat16"}) {
      const Message made = inverse_sigmoid(subtraction);
      for (const char* node : {"c", "r", "b", "q"})
        EXPECT_FALSE(decision_on(made, node, {}, dtype).low) << node << ' ' << dtype;
      EXPECT_TRUE(decision_on(made, "m", {}, dtype).low);
      EXPECT_TRUE(decision_on(made, "y", {}, dtype).low);
    }
  }
}

// Half a width less a centre, scaled: one edge of a box.
Message edge(bool through_a_product) {
  GraphBuilder g;
  g.input("x").weight("w").weight("half", {0.5F}, {}).weight("size", {640}, {});
  g.node("MatMul", {"x", "w"}, {"m"})
      .node("Sigmoid", {"m"}, {"c"})
      .node("Tanh", {"m"}, {"t"})
      .node("Mul", {"t", "half"}, {"h"});
  g.node("Sub", {"c", "h"}, {"e"}).node("Mul", {"e", "size"}, {"s"});
  if (through_a_product) g.node("MatMul", {"s", "w"}, {"y"});
  return model(g.output(through_a_product ? "y" : "s").take());
}

TEST(Differences, ThatAModelGivesAreFloatWhereTheTypeHasFewDigits) {
  for (const char* node : {"c", "h", "e", "s"})
    EXPECT_FALSE(decision_on(edge(false), node, {}, "bfloat16").low) << node;
  EXPECT_TRUE(decision_on(edge(false), "m", {}, "bfloat16").low);
  EXPECT_TRUE(decision_on(edge(true), "e", {}, "bfloat16").low);
}

TEST(Differences, AreWhatAThresholdComparesWhereTheTypeHasFewDigits) {
  GraphBuilder g;
  g.input("x").weight("w").weight("bound", {0.01F}, {});
  g.node("MatMul", {"x", "w"}, {"a"}).node("Sigmoid", {"a"}, {"p"}).node("Tanh", {"a"}, {"q"});
  g.node("Sub", {"p", "q"}, {"d"}).node("Greater", {"d", "bound"}, {"t"});
  const Message made = model(g.output("t", Element::kBool).take());
  for (const char* node : {"p", "q", "d"})
    EXPECT_FALSE(decision_on(made, node, {}, "bfloat16").low) << node;
}

}  // namespace
}  // namespace mezzo::convert
