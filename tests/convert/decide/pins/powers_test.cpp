// Squares before logarithms, roots, quotients and comparisons.
#include <gmock/gmock.h>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

constexpr const char* kTypes[] = {"float16", "bfloat16"};

void expect_float(const Message& made, std::initializer_list<const char*> nodes,
                  const std::string& dtype) {
  for (const char* node : nodes)
    EXPECT_FALSE(decision_on(made, node, {}, dtype).low) << node << ' ' << dtype;
}

// A spectrum of two convolutions, as models of audio have it.
GraphBuilder spectrum() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 64});
  g.weight("re", std::vector<float>(64, 0.1F), {4, 1, 16});
  g.weight("im", std::vector<float>(64, 0.2F), {4, 1, 16});
  g.weight("two", {2}, {}).weight("floor", {1e-12F}, {}).weight("half", {0.5F}, {});
  g.weight("bands", std::vector<float>(8, 0.3F), {2, 4})
      .weight("w", std::vector<float>(49, 1), {49, 1});
  g.node("Conv", {"x", "re"}, {"r"}).node("Conv", {"x", "im"}, {"i"});
  return g;
}

Message decibels_of(GraphBuilder g, const char* power) {
  g.node("Max", {power, "floor"}, {"m"}).node("Log", {"m"}, {"l"});
  return model(g.node("MatMul", {"l", "w"}, {"y"}).output("y", Element::kFloat, {}).take());
}

TEST(Powers, OfASpectrumAreFloatUpToTheTransform) {
  GraphBuilder g = spectrum();
  g.node("Mul", {"r", "r"}, {"rr"})
      .node("Mul", {"i", "i"}, {"ii"})
      .node("Add", {"rr", "ii"}, {"s"});
  g.node("Sqrt", {"s"}, {"a"}).node("Pow", {"a", "two"}, {"p"});
  const Message made = decibels_of(std::move(g), "p");
  for (const char* dtype : kTypes) {
    expect_float(made, {"r", "i", "rr", "ii", "s", "a", "p", "m", "l"}, dtype);
    EXPECT_TRUE(decision_on(made, "y", {}, dtype).low);
  }
  EXPECT_THAT(decision_on(made, "rr").why, HasSubstr("a square that"));
}

TEST(Powers, AreSeenThroughTheSumsOfBands) {
  GraphBuilder g = spectrum();
  g.node("Pow", {"r", "two"}, {"rr"}).node("Pow", {"i", "two"}, {"ii"});
  g.node("Add", {"rr", "ii"}, {"s"}).node("MatMul", {"bands", "s"}, {"mel"});
  const Message made = decibels_of(std::move(g), "mel");
  for (const char* dtype : kTypes) expect_float(made, {"r", "i", "rr", "ii", "s", "mel"}, dtype);
}

// x w, squared, summed, and read by one operator.
Message squared_and(const char* reader, const std::vector<std::string>& inputs) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").weight("bound", {0.01F}, {});
  g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w2"}, {"b"});
  g.node("Mul", {"b", "b"}, {"q"}).node("ReduceMean", {"q"}, {"s"});
  g.node(reader, inputs, {"t"});
  const bool compares = std::string(reader) == "Greater";
  return model(g.output("t", compares ? Element::kBool : Element::kFloat).take());
}

TEST(Powers, AreFloatWhoeverTellsThemApart) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> readers = {
      {"Sqrt", {"s"}}, {"Reciprocal", {"s"}}, {"Div", {"b", "s"}}, {"Greater", {"s", "bound"}}};
  for (const auto& [reader, inputs] : readers) {
    for (const char* dtype : kTypes) {
      const bool is_relative = std::string_view(reader) != "Greater";
      if (is_relative && std::string_view(dtype) == "bfloat16") continue;
      const Message made = squared_and(reader, inputs);
      EXPECT_FALSE(decision_on(made, "q", {}, dtype).low) << reader;
      // A layer's result is rounded anyway.
      EXPECT_TRUE(decision_on(made, "b", {}, dtype).low) << reader;
    }
  }
}

TEST(Powers, AreProductsWithACopyToo) {
  for (const char* copies : {"Identity", "Abs", "Neg"}) {
    GraphBuilder g = spectrum();
    g.node(copies, {"r"}, {"again"}).node("Mul", {"r", "again"}, {"q"}).node("Abs", {"q"}, {"p"});
    const Message made = decibels_of(std::move(g), "p");
    for (const char* dtype : kTypes) expect_float(made, {"r", "again", "q", "p"}, dtype);
  }
}

// |a|^2 - 2 a a^T: small beside what it is taken of.
TEST(Powers, AreProductsWithATransposedSelf) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").weight("two", {2}, {});
  g.node("MatMul", {"x", "w"}, {"first"}).node("MatMul", {"first", "w2"}, {"a"});
  g.node("Transpose", {"a"}, {"t"}).node("MatMul", {"a", "t"}, {"gram"});
  g.node("Mul", {"gram", "two"}, {"cross"}).node("Mul", {"a", "a"}, {"q"});
  g.node("ReduceSum", {"q"}, {"n"}).node("Sub", {"n", "cross"}, {"d"});
  const Message made = model(g.output("d").take());
  for (const char* dtype : kTypes) {
    expect_float(made, {"gram", "cross", "q", "n", "d"}, dtype);
    EXPECT_TRUE(decision_on(made, "a", {}, dtype).low);
  }
}

// |a|^2 - 2 a b + |b|^2, as models that look for the nearest of several vectors write it.
TEST(Powers, OfDifferencesWrittenOutAreFloatWithTheirProduct) {
  for (const bool is_scaled_first : {false, true}) {
    GraphBuilder g;
    g.input("x").weight("w").weight("codes", {1, 2, 3, 4}, {2, 2}).weight("two", {-2}, {});
    g.weight("lengths", {5, 25}, {1, 2}).node("MatMul", {"x", "w"}, {"a"});
    if (is_scaled_first) {
      g.node("Mul", {"a", "two"}, {"scaled"}).node("MatMul", {"scaled", "codes"}, {"cross"});
    } else {
      g.node("MatMul", {"a", "codes"}, {"dots"}).node("Mul", {"dots", "two"}, {"cross"});
    }
    g.node("ReduceSumSquare", {"a"}, {"n"}).node("Add", {"n", "lengths"}, {"both"});
    g.node("Add", {"both", "cross"}, {"d"}).node("MatMul", {"d", "w"}, {"y"});
    const Message made = model(g.output("y").take());
    for (const char* dtype : kTypes) {
      expect_float(made, {"n", "both", "cross", "d"}, dtype);
      expect_float(made, {is_scaled_first ? "scaled" : "dots"}, dtype);
      EXPECT_TRUE(decision_on(made, "a", {}, dtype).low) << dtype;
      EXPECT_TRUE(decision_on(made, "y", {}, dtype).low) << dtype;
    }
  }
}

TEST(Powers, BesideOtherProductsAreNoDifferences) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").node("MatMul", {"x", "w"}, {"a"});
  g.node("MatMul", {"x", "w2"}, {"b"}).node("ReduceSumSquare", {"a"}, {"n"});
  g.node("MatMul", {"b", "w2"}, {"c"}).node("Add", {"n", "c"}, {"y"});
  EXPECT_TRUE(decision_on(model(g.output("y").take()), "c").low);
}

TEST(Powers, OfActivationsAreNoSquaresToLookAt) {
  GraphBuilder g;
  g.input("x").weight("w").weight("c", {0.044F}, {});
  g.node("MatMul", {"x", "w"}, {"a"}).node("Mul", {"a", "a"}, {"q"}).node("Mul", {"q", "a"}, {"p"});
  g.node("Mul", {"p", "c"}, {"d"}).node("Add", {"a", "d"}, {"e"}).node("Tanh", {"e"}, {"t"});
  const Message made = model(g.node("MatMul", {"t", "w"}, {"y"}).output("y").take());
  for (const char* node : {"a", "q", "p", "d", "e", "t"})
    EXPECT_TRUE(decision_on(made, node).low) << node;
}

}  // namespace
}  // namespace mezzo::convert
