// The float32 parts that constants and measured ranges ask for, and those that they do not.
#include "convert/decide/decide.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "builder.h"
#include "convert/onnx/document.h"
#include "decision_on.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

TEST(ConstantFacts, CountWhatLeavesTheRangeOnEitherSide) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float none = std::numeric_limits<float>::quiet_NaN();
  const float least = std::numeric_limits<float>::denorm_min();
  // Odd in number, so that what is left of whole vectors counts, too.
  const std::vector<float> values{0,     -0.0F, 1,        -65519,    65520, -7e4F, 3e38F, 2e-8F,
                                  -4e-8, least, infinity, -infinity, none,  -none, 2};
  for (const Element low : {Element::kFloat16, Element::kBFloat16}) {
    GraphBuilder g;
    g.weight("w", values, {static_cast<std::int64_t>(values.size())});
    g.node("Relu", {"w"}, {"y"});
    Document document(bytes_of(model(g.output("y").take())));
    const Graph graph(document);
    Constants constants(graph, low);
    const ConstantFacts& facts = constants.facts(graph.scope(0).names.at("w"));
    const bool is_half = low == Element::kFloat16;
    EXPECT_EQ(facts.count, values.size());
    EXPECT_EQ(facts.largest, 3e38F);
    EXPECT_EQ(facts.smallest, least);
    EXPECT_EQ(facts.overflowing, is_half ? 3U : 0U);
    EXPECT_EQ(facts.vanishing, is_half ? 2U : 1U);
    EXPECT_EQ(facts.infinite, 2U);
    EXPECT_EQ(facts.nan, 2U);
  }
}

// Blocks with nothing to count are passed over, so what is rare must be found wherever it stands.
TEST(ConstantFacts, FindOneValueAnywhereInALargeConstant) {
  constexpr std::size_t kCount = 70'001;
  for (const std::size_t place :
       {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, kCount - 1}) {
    for (const float odd : {7e4F, 1e-9F, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), 0.0F, 2.0F}) {
      std::vector<float> values(kCount, -1.0F);
      values[place] = odd;
      GraphBuilder g;
      g.weight("w", values, {static_cast<std::int64_t>(kCount)}).node("Relu", {"w"}, {"y"});
      Document document(bytes_of(model(g.output("y").take())));
      const Graph graph(document);
      Constants constants(graph, Element::kFloat16);
      const ConstantFacts& facts = constants.facts(graph.scope(0).names.at("w"));
      EXPECT_EQ(facts.count, kCount);
      EXPECT_EQ(facts.largest, odd == 7e4F || odd == 2.0F ? odd : 1.0F);
      EXPECT_EQ(facts.smallest, odd == 1e-9F ? odd : 1.0F);
      EXPECT_EQ(facts.overflowing, odd == 7e4F ? 1U : 0U);
      EXPECT_EQ(facts.vanishing, odd == 1e-9F ? 1U : 0U);
      EXPECT_EQ(facts.infinite, std::isinf(odd) ? 1U : 0U);
      EXPECT_EQ(facts.nan, std::isnan(odd) ? 1U : 0U);
    }
  }
}

Message convolution(const std::vector<float>& weight, const std::vector<float>& bias) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4});
  g.weight("w", weight, {2, 2, 1, 1}).weight("b", bias, {2});
  g.node("Conv", {"x", "w", "b"}, {"c"}).node("Relu", {"c"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 2, 4, 4}).take());
}

TEST(ConstantRules, AConvolutionGoesLowHoweverSmallItsBiasIs) {
  for (const float tiny : {1e-8F, 3e-5F, -1e-7F}) {
    EXPECT_TRUE(decision_on(convolution({1, 2, 3, 4}, {tiny, 0}), "c").low) << tiny;
  }
}

TEST(ConstantRules, ATinyWeightKeepsItsConvolutionFloat) {
  const Decision decision = decision_on(convolution({1e-8F, 2e-8F, 1e-8F, 0}, {1, 2}), "c");
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("'w' reaches only 2e-08"));
}

TEST(ConstantRules, ABiasBeyondTheRangeKeepsItsConvolutionFloat) {
  EXPECT_FALSE(decision_on(convolution({1, 2, 3, 4}, {7e4F, 0}), "c").low);
}

TEST(ConstantRules, ABiasThatIsAddedApartFromItsProductGoesLowToo) {
  GraphBuilder g;
  g.input("x").weight("w").weight("b", {1e-8F, 2}, {2});
  g.node("MatMul", {"x", "w"}, {"m"})
      .node("Add", {"b", "m"}, {"a"})
      .node("MatMul", {"a", "w"}, {"y"});
  EXPECT_TRUE(decision_on(model(g.output("y").take()), "a").low);
}

TEST(ConstantRules, AnEpsilonBeforeADivisionStaysFloat) {
  GraphBuilder g;
  g.input("x").weight("w").weight("eps", {1e-8F}, {});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Relu", {"m"}, {"r"});
  g.node("Add", {"r", "eps"}, {"a"}).node("Div", {"m", "a"}, {"y"});
  EXPECT_FALSE(decision_on(model(g.output("y").take()), "a").low);
}

TEST(Indices, KeepTheirDigitsHoweverTheyAreMoved) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2}).weight("w").weight("table", {1, 2, 3, 4}, {4});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Mul", {"m", "m"}, {"p"}).node("Floor", {"p"}, {"f"});
  g.node("ReduceSum", {"f"}, {"r"}).node("Squeeze", {"r"}, {"s"});
  g.node("Cast", {"s"}, {"i"}, attribute("to", 7)).node("Gather", {"table", "i"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {}).take());
  for (const char* node : {"p", "f", "r", "s"}) {
    EXPECT_FALSE(decision_on(made, node).low) << node;
    EXPECT_THAT(decision_on(made, node).why, HasSubstr("index or a size")) << node;
  }
  EXPECT_TRUE(decision_on(made, "m").low);
}

TEST(Indices, KeepTheirDigitsInBodiesToo) {
  const auto branch = [](const char* attribute, const char* out) {
    GraphBuilder g(attribute);
    g.node("Mul", {"m", "m"}, {out}).output(out);
    return body_attribute(attribute, g.take());
  };
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w");
  g.node("MatMul", {"x", "w"}, {"m"});
  g.node("If", {"flag"}, {"r"}, branch("then_branch", "t"), branch("else_branch", "e"));
  g.node("Cast", {"r"}, {"i"}, attribute("to", 7)).output("i", Element::kInt64);
  const Message made = model(g.take());
  EXPECT_FALSE(decision_on(made, "r/then_branch/t").low);
  EXPECT_FALSE(decision_on(made, "r/else_branch/e").low);
  EXPECT_TRUE(decision_on(made, "m").low);
}

// A convolution with integer weights, and behind it one with float weights.
TEST(QuantisedRegions, EndWhereWeightsAreFloat) {
  const std::vector<std::int64_t> image{1, 2, 4, 4};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).weight("scale", {0.1F}, {});
  g.initializer(tensor<std::uint8_t>("zero", Element::kUint8, {}, {128}));
  g.initializer(tensor<std::uint8_t>("wq", Element::kUint8, {2, 2, 1, 1}, {1, 2, 3, 4}));
  g.weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("QuantizeLinear", {"x", "scale", "zero"}, {"xq"});
  g.node("DequantizeLinear", {"xq", "scale", "zero"}, {"xd"});
  g.node("DequantizeLinear", {"wq", "scale", "zero"}, {"wd"});
  g.node("Conv", {"xd", "wd"}, {"c"}).node("QuantizeLinear", {"c", "scale", "zero"}, {"cq"});
  g.node("DequantizeLinear", {"cq", "scale", "zero"}, {"cd"});
  g.node("Conv", {"cd", "w"}, {"d"}).node("Conv", {"d", "w"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, image).take());
  EXPECT_FALSE(decision_on(made, "c").low);
  EXPECT_TRUE(decision_on(made, "d").low);
  EXPECT_TRUE(decision_on(made, "y").low);
}

// Weights in small storage are weights: their products are those of floats.
TEST(QuantisedRegions, AreNoneWhereOnlyWeightsAreStoredAsIntegers) {
  for (const int opset : {13, 19, 21, 23}) {
    GraphBuilder g;
    g.input("x").weight("w").weight("scale", {0.1F}, {});
    g.initializer(tensor<std::uint8_t>("wq", Element::kUint8, {2, 2}, {1, 2, 3, 4}));
    g.node("MatMul", {"x", "w"}, {"a"}).node("DequantizeLinear", {"wq", "scale"}, {"wd"});
    g.node("MatMul", {"a", "wd"}, {"b"}).node("MatMul", {"b", "w"}, {"y"});
    const Message made = model(g.output("y").take(), opset);
    EXPECT_TRUE(decision_on(made, "b").low) << opset;
    if (opset < 19) continue;  // DequantizeLinear gives float32 only
    EXPECT_TRUE(decision_on(made, "wd").low) << opset;
  }
}

TEST(QuantisedRegions, HaveTransposedWeightsToo) {
  GraphBuilder g;
  g.input("x").weight("scale", {0.1F}, {});
  g.initializer(tensor<std::uint8_t>("zero", Element::kUint8, {}, {128}));
  g.initializer(tensor<std::uint8_t>("wq", Element::kUint8, {2, 2}, {1, 2, 3, 4}));
  g.node("QuantizeLinear", {"x", "scale", "zero"}, {"xq"});
  g.node("DequantizeLinear", {"xq", "scale", "zero"}, {"xd"});
  g.node("DequantizeLinear", {"wq", "scale", "zero"}, {"wd"}).node("Transpose", {"wd"}, {"wt"});
  g.node("MatMul", {"xd", "wt"}, {"y"});
  EXPECT_FALSE(decision_on(model(g.output("y").take(), 21), "y").low);
}

Message products() {
  GraphBuilder g;
  g.input("x").weight("w").weight("s", {0.5F}, {});
  g.node("MatMul", {"x", "w"}, {"a"}).node("Mul", {"a", "s"}, {"b"});
  g.node("MatMul", {"b", "w"}, {"c"}).node("MatMul", {"c", "w"}, {"y"});
  return model(g.output("y").take());
}

TEST(MeasuredRanges, BeyondAQuarterOfTheRangeAValueStaysFloat) {
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 1.6e4}}).low);
  const Decision decision = decision_on(products(), "a", {{"a", 1.7e4}});
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("'a' reaches 1.7e+04 on the calibration data"));
  EXPECT_TRUE(decision_on(products(), "c", {{"a", 1.7e4}}).low) << "reads what another one made";
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 1e30}}, "bfloat16").low);
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 6e4}}, "float16", 1).low);
  EXPECT_FALSE(decision_on(products(), "a", {{"a", 1.6e4}}, "float16", 5).low);
}

TEST(MeasuredRanges, NearTheSubnormalsAValueStaysFloat) {
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 2.5e-4}}).low);
  EXPECT_FALSE(decision_on(products(), "a", {{"a", 2.4e-4}}).low);
  const Decision decision = decision_on(products(), "a", {{"a", 1e-6}});
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("'a' reaches only 1e-06 on the calibration data"));
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 0}}).low) << "zeros are exact";
  EXPECT_TRUE(decision_on(products(), "a", {{"a", 1e-6}}, "bfloat16").low);
}

TEST(MeasuredRanges, SayNothingAboutConstants) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("Constant", {}, {"b"}, tensor_attribute("value", floats("", {2}, {1e-8F, 0})));
  g.node("Conv", {"x", "w", "b"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {1, 2, 4, 4}).take());
  EXPECT_TRUE(decision_on(made, "y", {{"b", 1e-8}}).low);
}

// Where a Cast may stand in several places, it moves the fewest bytes. No shape is told but those
// of the inputs.
TEST(CastPlacement, StandsWhereTheValueIsSmallest) {
  const auto product_then = [](const std::vector<std::int64_t>& repeats) {
    GraphBuilder g;
    g.input("x").weight("w");
    g.initializer(tensor("repeats", Element::kInt64, {2}, repeats));
    g.node("MatMul", {"x", "w"}, {"m"}).node("Tile", {"m", "repeats"}, {"t"});
    return model(g.node("Softmax", {"t"}, {"y"}).output("y").take());
  };
  EXPECT_FALSE(decision_on(product_then({64, 1}), "t").low) << "the Cast stands in front of Tile";
  EXPECT_TRUE(decision_on(product_then({1, 1}), "t").low)
      << "of equal sizes, moving is free in 16 bits";
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.weight("scales", {1, 1, 2, 2}, {4}).weight("none", {}, {0});
  g.node("Softmax", {"x"}, {"s"}).node("Resize", {"s", "none", "scales"}, {"r"});
  g.node("Conv", {"r", "w"}, {"y"}).output("y", Element::kFloat, {1, 2, 8, 8});
  EXPECT_TRUE(decision_on(model(g.take()), "r").low) << "the Cast stands in front of Resize";
}

TEST(CastPlacement, BelievesTheShapesThatTheFileTells) {
  const auto product_of = [](std::int64_t told) {
    GraphBuilder g;
    g.input("x").input("shape", Element::kInt64, {2}).weight("w");
    g.node("MatMul", {"x", "w"}, {"m"}).node("Expand", {"m", "shape"}, {"e"});
    g.node("Softmax", {"e"}, {"y"}).output("y", Element::kFloat, {-1, -1});
    if (told != 0) g.add(field::graph::kValueInfo, value_info("e", Element::kFloat, {told, 2}));
    return model(g.take());
  };
  EXPECT_TRUE(decision_on(product_of(0), "e").low) << "of unknown size, as large as what it reads";
  EXPECT_FALSE(decision_on(product_of(64), "e").low);
  EXPECT_TRUE(decision_on(product_of(1), "e").low);
}

// Weights behind Casts cost one each where they are read low.
TEST(CastPlacement, CountsTheCastsOfWeights) {
  GraphBuilder g;
  g.input("x").weight("w").weight("a", {1, 2}, {2}).weight("b", {1, 2}, {2}).weight("c");
  g.node("MatMul", {"x", "w"}, {"m"}).node("Sub", {"a", "m"}, {"n"}).node("Sub", {"b", "n"}, {"o"});
  g.node("Sub", {"c", "o"}, {"p"}).node("MatMul", {"p", "w"}, {"y"}).output("y");
  const std::string bytes = bytes_of(model(g.take()));
  for (const bool stored : {false, true}) {
    Document document(bytes);
    const Graph graph(document);
    Options options;
    options.cast_optional_params = stored;
    const ConvertPolicy policy(options);
    Constants constants(graph, policy.low());
    for (const Decision& decision : decide(graph, policy, constants).list)
      EXPECT_EQ(decision.low, stored || decision.op == "MatMul") << decision.key;
  }
}

// One Cast behind a large value against two behind its small parts.
TEST(CastPlacement, TakesFewerCastsBeforeFewerBytes) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {64, 64}).weight("w", std::vector<float>(4096, 1), {64, 64});
  g.node("MatMul", {"x", "w"}, {"m"});
  g.node("ReduceMax", {"m"}, {"a"}, attribute("keepdims", std::int64_t{0}));
  g.node("ReduceMin", {"m"}, {"b"}, attribute("keepdims", std::int64_t{0}));
  g.node("Exp", {"a"}, {"c"}).node("Exp", {"b"}, {"d"});
  g.output("c", Element::kFloat, {}).output("d", Element::kFloat, {});
  const Message made = model(g.take());
  EXPECT_FALSE(decision_on(made, "a").low);
  EXPECT_FALSE(decision_on(made, "b").low);
}

// Rounding what is only moved before or after it is moved gives the same numbers.
TEST(CastPlacement, AnEmbeddingBesideAFloatFeatureGoesLowWithItsTable) {
  const auto joined_with = [](const char* way, const char* reader) {
    GraphBuilder g;
    g.input("ids", Element::kInt64, {2}).input("feature").weight("table").weight("w", {1, 2, 3, 4});
    g.node("Gather", {"table", "ids"}, {"e"});
    if (std::string_view(way) == "Concat") {
      g.node(way, {"e", "feature"}, {"c"}, attribute("axis", std::int64_t{0}));
    } else {
      g.node(way, {"e", "feature"}, {"c"});
    }
    return model(g.node("Neg", {"c"}, {"n"})
                     .node(reader, {"n", "w"}, {"y"})
                     .output("y", Element::kFloat, {-1, 2})
                     .take());
  };
  const auto low_nodes = [&](const char* way, const char* reader) {
    Document document(bytes_of(joined_with(way, reader)));
    const Graph graph(document);
    Options options;
    options.cast_optional_params = true;  // a table behind a Cast would cost one
    const ConvertPolicy policy(options);
    Constants constants(graph, policy.low());
    std::string low;
    for (const Decision& decision : decide(graph, policy, constants).list)
      low += decision.low ? decision.key : "";
    return low;
  };
  for (const char* way : {"Concat", "Max"}) EXPECT_EQ(low_nodes(way, "MatMul"), "ecny") << way;
  EXPECT_EQ(low_nodes("Add", "MatMul"), "ny") << "a sum has digits of its own";
  EXPECT_EQ(low_nodes("Concat", "Pow"), "") << "its reader stays float32";
}

// The norm computes in its stash_type, whatever type it reads.
TEST(Classes, ALayerNormThatComputesInFloatFollowsItsNeighbours) {
  const auto norm = [](std::int64_t stash) {
    GraphBuilder g;
    g.input("x").weight("w").weight("s", {1, 2}, {2}).weight("b", {1, 2}, {2});
    g.node("MatMul", {"x", "w"}, {"m"});
    g.node("LayerNormalization", {"m", "s", "b"}, {"n"}, attribute("stash_type", stash));
    return model(g.node("MatMul", {"n", "w"}, {"y"}).output("y").take());
  };
  EXPECT_TRUE(decision_on(norm(1), "n").low);
  EXPECT_FALSE(decision_on(norm(10), "n").low) << "it would sum in float16";
}

// A sum of what is given and what was computed: the float32 input decides, not the number of casts.
TEST(Classes, ASumOfAFloatInputSaysWhichInputItIs) {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"m"}).node("Add", {"x", "m"}, {"s"});
  const Message made = model(g.node("MatMul", {"s", "w"}, {"y"}).output("y").take());
  EXPECT_FALSE(decision_on(made, "s").low);
  EXPECT_EQ(decision_on(made, "s").why,
            "it takes the widest type of its inputs, and 'x' is float32");
}

TEST(NarrowedInputs, AreWarnedOfWhereTheModelMakesIntegersOfThem) {
  const auto warnings = [](const char* io, const char* between, std::int64_t to) {
    GraphBuilder g;
    g.input("ids").weight("table", {1, 2, 3, 4}, {4});
    g.node(between, {"ids"}, {"r"}).node("Cast", {"r"}, {"i"}, attribute("to", to));
    if (to == 7) g.node("Gather", {"table", "i"}, {"y"}).output("y");
    if (to != 7) g.output("i", static_cast<Element>(to));
    Document document(bytes_of(model(g.take())));
    const Graph graph(document);
    Options options;
    options.io = io;
    return warnings_of_narrowed_ids(graph, ConvertPolicy(options));
  };
  EXPECT_THAT(
      warnings("low", "Identity", 7),
      testing::ElementsAre(HasSubstr("'ids' is asked for in float16, which counts to 2048")));
  EXPECT_THAT(warnings("low", "Floor", 7), testing::SizeIs(1));
  EXPECT_THAT(warnings("keep", "Identity", 7), testing::IsEmpty());
  EXPECT_THAT(warnings("low", "Identity", 9), testing::IsEmpty()) << "a flag is no number";
}

}  // namespace
}  // namespace mezzo::convert
