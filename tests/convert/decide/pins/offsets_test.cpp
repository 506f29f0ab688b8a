// Offsets that numbers share before a normalisation.
#include <gmock/gmock.h>

#include "decision_on.h"
#include "offset_models.h"

namespace mezzo::convert {
namespace {

constexpr std::array<const char*, 2> kBothLow{"float16", "bfloat16"};

void expect_kept(const Message& made, const std::vector<std::string>& nodes) {
  for (const char* dtype : kBothLow) {
    for (const std::string& node : nodes)
      EXPECT_EQ(decision_on(made, node, {}, dtype).pin, "offsets") << node << ' ' << dtype;
  }
}

void expect_all_low(const Message& made, const std::vector<std::string>& nodes) {
  for (const char* dtype : kBothLow) {
    for (const std::string& node : nodes)
      EXPECT_TRUE(decision_on(made, node, {}, dtype).low) << node << ' ' << dtype;
  }
}

TEST(Offsets, OfAConstantAreFloatUpToTheNormalisation) {
  for (const float offset : {100.0F, -100.0F, 1.0F}) {
    const Message made = shifted_norm(offset, offset == 1.0F ? 1e-3F : 0.3F);
    expect_kept(made, {"a", "l"});
    expect_all_low(made, {"p", "y"});
  }
  EXPECT_EQ(decision_on(shifted_norm(100, 0.3F, "Softmax"), "a").pin, "offsets");
}

// p * 0.003 + 1: as far from its spread as 100 +- 0.3.
TEST(Offsets, AreMeasuredByTheFactorsBeforeThem) {
  const auto scaled = [](float factor) {
    GraphBuilder g = graph_of_fours();
    g.weight("factor", {factor}, {}).weight("offset", {1}, {});
    g.node("MatMul", {"x", "w"}, {"p"}).node("Mul", {"p", "factor"}, {"m"});
    g.node("Add", {"m", "offset"}, {"a"});
    return norm_and_product(g);
  };
  expect_kept(scaled(0.003F), {"a", "l"});
  for (const char* node : {"a", "l"}) EXPECT_NE(decision_on(scaled(0.3F), node).pin, "offsets");
}

TEST(Offsets, OfTheNormalisationBeforeAreFloat) {
  const auto twice = [](float bias) {
    GraphBuilder g = graph_of_fours();
    g.weight("small", {0.3F, 0.3F, 0.3F, 0.3F}, {4}).weight("bias", {bias, bias, bias, bias}, {4});
    g.node("MatMul", {"x", "w"}, {"p"}).node("LayerNormalization", {"p", "small", "bias"}, {"n"});
    g.node("MatMul", {"n", "w"}, {"q"}).node("Add", {"n", "q"}, {"a"});
    return norm_and_product(g);
  };
  expect_kept(twice(100), {"n", "a", "l"});
  expect_all_low(twice(0.5F), {"n", "a", "l"});
}

TEST(Offsets, OfABiasKeepItsProductFloat) {
  expect_kept(biased_norm({100, 100.5F, 99.5F, 100}), {"a", "l"});
  expect_all_low(biased_norm({100, 100.5F, 99.5F, 100}), {"y"});
}

TEST(Offsets, OfACallerAreFloatWhereSomethingElseReadsThemLow) {
  expect_kept(given_norm(), {"r", "l"});
  expect_all_low(given_norm(), {"p", "q"});
}

TEST(Offsets, InPiecesAreFloatFromWhereTheyComeFrom) {
  for (const char* mean : {"ReduceMean", "ReduceSum"}) {
    expect_kept(shifted_pieces(mean), {"a", "d"});
    EXPECT_FALSE(decision_on(shifted_pieces(mean), "b").low) << mean;
  }
}

TEST(Offsets, OfChannelsAreFloatBeforeNormalisationsOfThem) {
  for (const char* norm :
       {"InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"}) {
    const Decision decision = decision_on(biased_channels(norm, {100, -80}), "p", {}, "bfloat16");
    EXPECT_EQ(decision.pin, "offsets") << norm;
    EXPECT_TRUE(decision_on(biased_channels(norm, {0.3F, -0.2F}), "p", {}, "bfloat16").low) << norm;
  }
}

TEST(Offsets, OfWhatIsSkippedAreFloatBeforeTheNormalisationOfTheSum) {
  GraphBuilder g = graph_of_fours(0.3F);
  g.weight("offset", {100}, {})
      .node("MatMul", {"x", "v"}, {"p"})
      .node("Add", {"p", "offset"}, {"a"});
  g.node("MatMul", {"x", "w"}, {"q"}).in_domain("com.microsoft");
  g.node("SkipLayerNormalization", {"q", "a", "gamma", "beta"}, {"l"});
  g.node("MatMul", {"l", "w"}, {"y"});
  Message made = model(g.output("y", Element::kFloat, {8, 4}).take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "com.microsoft")));
  expect_kept(made, {"a", "l"});
  expect_all_low(made, {"p", "q", "y"});
}

TEST(Offsets, OfTablesAreFloat) {
  expect_kept(normalised_table(50), {"e", "l"});
  for (const char* node : {"e", "l"})
    EXPECT_NE(decision_on(normalised_table(0), node).pin, "offsets") << node;
}

// The residual stream of a transformer, with biases as training leaves them.
TEST(Offsets, ThatNoConstantMakesLeaveNormalisationsLow) {
  expect_all_low(residual_stream(), {"b", "l", "q", "r", "l2"});
}

TEST(Offsets, DoNotComeThroughAMask) {
  GraphBuilder g;
  g.input("x").input("mask").weight("w").weight("gamma", {1, 1}, {2});
  g.node("MatMul", {"x", "w"}, {"p"}).node("Mul", {"p", "mask"}, {"m"});
  g.node("LayerNormalization", {"m", "gamma"}, {"l"}).node("MatMul", {"l", "w"}, {"y"});
  EXPECT_NE(decision_on(model(g.output("y").take()), "l").pin, "offsets");
}

TEST(Offsets, DoNotMatterToANormalisationThatTakesNoMeanAway) {
  GraphBuilder g;
  g.input("x").weight("w").weight("gamma", {1, 1}, {2}).weight("hundred", {100}, {});
  g.node("MatMul", {"x", "w"}, {"p"}).node("Add", {"p", "hundred"}, {"a"});
  g.node("LpNormalization", {"a"}, {"l"}).node("MatMul", {"l", "w"}, {"y"});
  const Message made = model(g.output("y").take(), 22);
  for (const char* node : {"a", "l"}) EXPECT_NE(decision_on(made, node).pin, "offsets") << node;
}

TEST(Offsets, ThatABatchNormalisationKnowsOfKeepItAndItsProductFloat) {
  const auto norm = [](std::vector<float> mean, std::vector<float> variance,
                       std::vector<float> scale = {1, 1}) {
    return batch_norm(std::move(mean), std::move(variance), std::move(scale));
  };
  for (const Message& made : {norm({0.7F, 0.7F}, {1e-6F, 1e-6F}), norm({0, 0.7F}, {1, 1e-6F})}) {
    expect_kept(made, {"p", "n"});
    expect_all_low(made, {"y"});
  }
  expect_all_low(norm({0.7F, -1.5F}, {1, 0.5F}), {"p", "n"});
  // A channel that training has switched off.
  expect_all_low(norm({0.7F, 0}, {1e-6F, 1}, {1e-6F, 1}), {"p", "n"});
}

TEST(Offsets, ThatABatchNormalisationKnowsOfComeFromWhatItsProductReads) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("v", {1, 0.5F, 0.5F, 1}, {2, 2, 1, 1});
  g.node("Conv", {"x", "v"}, {"first"}).node("Relu", {"first"}, {"r"});
  g.node("Conv", {"r", "v"}, {"p"}).weight("one", {1, 1}, {2}).weight("none", {0, 0}, {2});
  g.weight("mean", {0.7F, 0.7F}, {2}).weight("variance", {1e-6F, 1e-6F}, {2});
  g.node("BatchNormalization", {"p", "one", "none", "mean", "variance"}, {"n"});
  g.node("Conv", {"n", "v"}, {"y"}).output("y", Element::kFloat, {1, 2, 4, 4});
  const Message made = model(g.take(), 22);
  for (const char* node : {"first", "r", "p", "n"})
    EXPECT_EQ(decision_on(made, node).pin, "offsets") << node;
}

TEST(Offsets, ComeThroughBodies) {
  GraphBuilder then("then");
  then.node("Add", {"p", "hundred"}, {"t"}).output("t");
  GraphBuilder other("else");
  other.node("Sub", {"p", "hundred"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w").weight("hundred", {100}, {});
  g.weight("gamma", {1, 1}, {2}).node("MatMul", {"x", "w"}, {"p"});
  g.node("If", {"flag"}, {"a"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.node("LayerNormalization", {"a", "gamma"}, {"l"}).node("MatMul", {"l", "w"}, {"y"});
  const Message made = model(g.output("y").take());
  for (const char* node : {"a/then_branch/t", "a/else_branch/e", "l"})
    EXPECT_EQ(decision_on(made, node).pin, "offsets") << node;
}

}  // namespace
}  // namespace mezzo::convert
