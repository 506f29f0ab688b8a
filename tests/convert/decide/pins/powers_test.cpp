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

// Two transforms beside each other, times lengths, squared, summed: a magnitude.
TEST(Powers, OfJoinedAndScaledTransformsAreFloatUpToThem) {
  for (const bool is_constant_factor : {true, false}) {
    GraphBuilder g = spectrum();
    g.weight("lengths", std::vector<float>(98, 0.5F), {2, 1, 49});
    g.input("given", Element::kFloat, {2, 1, 49});
    g.node("Unsqueeze", {"r"}, {"r1"}, integers_attribute("axes", {0}));
    g.node("Unsqueeze", {"i"}, {"i1"}, integers_attribute("axes", {0}));
    g.node("Concat", {"r1", "i1"}, {"both"}, attribute("axis", std::int64_t{0}));
    g.node("Mul", {"both", is_constant_factor ? "lengths" : "given"}, {"z"});
    g.node("Mul", {"z", "z"}, {"zz"}).node("ReduceSum", {"zz"}, {"s"}).node("Sqrt", {"s"}, {"p"});
    Message made = decibels_of(std::move(g), "p");
    for (const char* dtype : kTypes) {
      expect_float(made, {"r", "i", "both", "z", "zz", "s", "p"}, dtype);
      EXPECT_TRUE(decision_on(made, "y", {}, dtype).low);
    }
    EXPECT_THAT(decision_on(made, "z").why, HasSubstr("told apart"));
  }
}

// All ways that models write the power of a transform, each from "r" and "i" to "p".
std::vector<std::pair<const char*, GraphBuilder>> powers_of_transforms() {
  std::vector<std::pair<const char*, GraphBuilder>> ways;
  const auto add = [&](const char* name) -> GraphBuilder& {
    return ways.emplace_back(name, spectrum()).second;
  };
  add("ReduceL2")
      .node("Concat", {"r", "i"}, {"z"}, attribute("axis", 1))
      .node("ReduceL2", {"z"}, {"p"}, integers_attribute("axes", {1}));
  add("ReduceSumSquare")
      .node("Concat", {"r", "i"}, {"z"}, attribute("axis", 1))
      .node("ReduceSumSquare", {"z"}, {"p"}, integers_attribute("axes", {1}));
  add("Abs").node("Neg", {"r"}, {"z"}).node("Abs", {"z"}, {"p"});
  add("scaled in front")
      .node("Mul", {"r", "half"}, {"z"})
      .node("Pow", {"z", "two"}, {"s"})
      .node("Pow", {"s", "half"}, {"p"});
  add("divided in front").node("Div", {"r", "two"}, {"z"}).node("Pow", {"z", "two"}, {"p"});
  add("an own factor").node("Mul", {"r", "half"}, {"z"}).node("Mul", {"z", "r"}, {"p"});
  add("two signals").node("Mul", {"r", "i"}, {"z"}).node("Abs", {"z"}, {"p"});
  add("a sum").node("Add", {"r", "i"}, {"z"}).node("Mul", {"z", "z"}, {"p"});
  add("a bias").node("Add", {"r", "half"}, {"z"}).node("Mul", {"z", "z"}, {"p"});
  add("weighed behind")
      .node("Mul", {"r", "r"}, {"z"})
      .node("ReduceMax", {"z"}, {"most"})
      .node("Div", {"z", "most"}, {"p"});
  add("padded")
      .node("Transpose", {"r"}, {"z"}, integers_attribute("perm", {0, 2, 1}))
      .node("ReduceSumSquare", {"z"}, {"p"}, integers_attribute("axes", {1}));
  return ways;
}

TEST(Powers, OfTransformsAreSeenHoweverTheyAreWritten) {
  for (auto& [name, graph] : powers_of_transforms()) {
    const Message made = decibels_of(std::move(graph), "p");
    for (const char* dtype : kTypes) {
      SCOPED_TRACE(name);
      expect_float(made, {"r", "z", "p"}, dtype);
      EXPECT_TRUE(decision_on(made, "y", {}, dtype).low);
    }
  }
}

TEST(Powers, OfHalvesOfOneTransformAreFloatUpToIt) {
  GraphBuilder g = spectrum();
  g.node("Split", {"r"}, {"a", "b"}, attribute("axis", 1), attribute("num_outputs", 2));
  g.node("Mul", {"a", "a"}, {"aa"})
      .node("Mul", {"b", "b"}, {"bb"})
      .node("Add", {"aa", "bb"}, {"s"});
  g.node("Max", {"s", "floor"}, {"m"}).node("Log", {"m"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {}).take(), 18);
  for (const char* dtype : kTypes) expect_float(made, {"r", "a", "aa", "bb", "s"}, dtype);
}

// The matrix of a discrete Fourier transform may stand on either side, and only what it is
// multiplied with is a signal.
TEST(Powers, OfATransformByAMatrixOnTheLeftAreFloatWhereItIsTheFirstProduct) {
  for (const bool is_first : {true, false}) {
    GraphBuilder g;
    g.input("x").weight("dft").weight("w").weight("floor", {1e-10F}, {});
    g.node("MatMul", {"x", "w"}, {"h"});
    g.node("MatMul", {"dft", is_first ? "x" : "h"}, {"t"}).node("Mul", {"t", "t"}, {"p"});
    g.node("MatMul", {"h", "w"}, {"other"}).output("other");
    const Message made = decibels_of(std::move(g), "p");
    for (const char* dtype : kTypes)
      EXPECT_EQ(decision_on(made, "t", {}, dtype).low, !is_first) << dtype;
  }
}

// The signal goes through a norm, which only scales it, and then through the transform.
TEST(Powers, OfATransformBehindANormOfTheSignalAreFloat) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 64}).weight("one", {1}, {1}).weight("zero", {0}, {1});
  g.weight("re", std::vector<float>(64, 0.1F), {4, 1, 16}).weight("floor", {1e-12F}, {});
  g.weight("w", std::vector<float>(49, 1), {49, 1});
  g.node("InstanceNormalization", {"x", "one", "zero"}, {"n"}).node("Conv", {"n", "re"}, {"r"});
  const Message made = decibels_of(std::move(g.node("Mul", {"r", "r"}, {"p"})), "p");
  for (const char* dtype : kTypes) expect_float(made, {"r", "p"}, dtype);
}

// Energies divided by a power of their own mean, as PCEN has it: exp(-alpha log(mean)).
TEST(Powers, ThatArePutInRelationToTheirMeanAreFloatUpToTheTransform) {
  GraphBuilder g = spectrum();
  g.node("Mul", {"r", "r"}, {"rr"}).node("MatMul", {"bands", "rr"}, {"e"});
  g.node("ReduceMean", {"e"}, {"mean"}).node("Add", {"mean", "floor"}, {"safe"});
  g.node("Log", {"safe"}, {"l"}).node("Mul", {"l", "half"}, {"k"}).node("Exp", {"k"}, {"d"});
  g.node("Div", {"e", "d"}, {"y"}).output("y", Element::kFloat, {});
  const Message made = model(g.take());
  for (const char* dtype : kTypes) expect_float(made, {"r", "rr", "e", "mean"}, dtype);
}

// A branch takes the transform, another one the logarithm.
TEST(Powers, OfTransformsInBodiesAreFloat) {
  GraphBuilder g = spectrum();
  g.input("which", Element::kBool, {});
  const auto branch = [](const char* transform) {
    GraphBuilder b(transform);
    const std::string out = std::string("t_") + transform;
    return b.node("Conv", {"x", transform}, {out}).output(out, Element::kFloat, {1, 4, 49}).take();
  };
  g.node("If", {"which"}, {"t"}, body_attribute("then_branch", branch("re")),
         body_attribute("else_branch", branch("im")));
  g.node("Mul", {"t", "half"}, {"z"}).node("Mul", {"z", "z"}, {"p"});
  const Message made = decibels_of(std::move(g), "p");
  for (const char* dtype : kTypes)
    expect_float(made, {"t/then_branch/t_re", "t/else_branch/t_im", "z", "p"}, dtype);
}

// The whole of a projection whose squares nobody takes the logarithm of: F.normalize.
TEST(Powers, ThatNoLogarithmReadsLeaveTheirProductLow) {
  for (const bool is_written_out : {true, false}) {
    GraphBuilder g;
    g.input("x").weight("w").weight("least", {1e-6F}, {}).node("MatMul", {"x", "w"}, {"a"});
    if (is_written_out) {
      g.node("Mul", {"a", "a"}, {"q"}).node("ReduceSum", {"q"}, {"s"}).node("Sqrt", {"s"}, {"n"});
    } else {
      g.node("ReduceL2", {"a"}, {"n"}, integers_attribute("axes", {1}));
    }
    g.node("Max", {"n", "least"}, {"m"}).node("Div", {"a", "m"}, {"y"});
    const Message made = model(g.output("y").take());
    for (const char* dtype : kTypes) EXPECT_TRUE(decision_on(made, "a", {}, dtype).low) << dtype;
    expect_float(made, {"n"}, "float16");
  }
}

// A spectrum that a network reads as it is.
TEST(Powers, OfAMagnitudeWithoutALogarithmLeaveTheTransformLow) {
  GraphBuilder g = spectrum();
  g.node("Mul", {"r", "r"}, {"rr"})
      .node("Mul", {"i", "i"}, {"ii"})
      .node("Add", {"rr", "ii"}, {"s"});
  g.node("Sqrt", {"s"}, {"p"}).node("MatMul", {"p", "w"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {}).take());
  for (const char* node : {"r", "i"}) EXPECT_TRUE(decision_on(made, node).low) << node;
  expect_float(made, {"rr", "ii", "s", "p"}, "float16");
}

// A divisor of a power is none: the logarithm of cosines.
TEST(Powers, ThatOnlyDivideBeforeALogarithmLeaveTheirProductLow) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").weight("floor", {1e-6F}, {});
  g.node("MatMul", {"x", "w"}, {"a"})
      .node("ReduceL2", {"a"}, {"n"}, integers_attribute("axes", {1}));
  g.node("Div", {"a", "n"}, {"c"}).node("MatMul", {"c", "w2"}, {"d"});
  g.node("Max", {"d", "floor"}, {"m"}).node("Log", {"m"}, {"y"});
  const Message made = model(g.output("y").take());
  for (const char* dtype : kTypes) EXPECT_TRUE(decision_on(made, "a", {}, dtype).low) << dtype;
}

// Squares of layers that are not the first are rounded with them.
TEST(Powers, OfLaterLayersLeaveThemLowThoughALogarithmReadsThem) {
  GraphBuilder g;
  g.input("x").weight("w").weight("w2").weight("half", {0.5F}, {});
  g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w2"}, {"b"});
  g.node("Mul", {"b", "half"}, {"z"}).node("Mul", {"z", "z"}, {"q"}).node("Log", {"q"}, {"y"});
  const Message made = model(g.output("y").take());
  for (const char* dtype : kTypes) EXPECT_TRUE(decision_on(made, "b", {}, dtype).low) << dtype;
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
