// Numbers of the model that the low type cannot hold, wherever they stand.
#include <gmock/gmock.h>

#include "corpus.h"
#include "decision_on.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

Message filled(float value) {
  return tensor_attribute("value", floats("", {1}, {value}));
}

// A mask of one value where a product is not wanted, before Softmax.
Message masked(float value) {
  GraphBuilder g;
  g.input("x").input("mask", Element::kBool).weight("w");
  g.initializer(tensor<std::int64_t>("shape", Element::kInt64, {2}, {2, 2}));
  g.node("MatMul", {"x", "w"}, {"s"}).node("ConstantOfShape", {"shape"}, {"f"}, filled(value));
  g.node("Where", {"mask", "s", "f"}, {"chosen"}).node("Softmax", {"chosen"}, {"y"});
  return model(g.output("y").take());
}

TEST(PinnedConstants, AValueInEveryElementCountsAsAConstant) {
  const Decision decision = decision_on(masked(-1e9F), "f");
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("the value of node making 'f' (ConstantOfShape) reaches"));
  EXPECT_FALSE(decision_on(masked(-1e9F), "chosen").low);
  EXPECT_FALSE(decision_on(masked(1e-12F), "chosen").low);
  EXPECT_TRUE(decision_on(masked(-1e4F), "s").low);
  EXPECT_FALSE(decision_on(masked(-1e38F), "chosen", {}, "bfloat16").why.find("reaches") !=
               std::string::npos)
      << "bfloat16 holds it";
}

// A product, one node with numbers in its attributes, and a product.
Message between(int opset, const std::string& op, std::vector<Message> attributes,
                const std::vector<std::int64_t>& padded = {2, 2}) {
  GraphBuilder g;
  g.input("x").weight("w").weight("v", std::vector<float>(4, 1), {2, 2});
  g.node("MatMul", {"x", "w"}, {"m"});
  Message node;
  node.add(field::node::kInput, std::string_view("m"));
  node.add(field::node::kOutput, std::string_view("n"));
  node.add(field::node::kOpType, kept(op));
  for (Message& each : attributes)
    node.add(field::node::kAttribute, std::make_unique<Message>(std::move(each)));
  g.add(field::graph::kNode, std::move(node)).node("MatMul", {"n", "v"}, {"y"});
  return model(g.output("y", Element::kFloat, padded).take(), opset);
}

std::vector<Message> bounds(float least, float most) {
  std::vector<Message> all;
  all.push_back(float_attribute("min", least));
  all.push_back(float_attribute("max", most));
  return all;
}

std::vector<Message> border(float value) {
  std::vector<Message> all;
  all.push_back(integers_attribute("pads", {0, 0, 0, 0}));
  all.push_back(float_attribute("value", value));
  return all;
}

TEST(PinnedConstants, BoundsInAttributesKeepTheirDigits) {
  EXPECT_TRUE(decision_on(between(6, "Clip", bounds(0, 6)), "n").low);
  const Decision decision = decision_on(between(6, "Clip", bounds(1e-12F, 6)), "n");
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("min of node making 'n' (Clip) reaches only 1e-12"));
  EXPECT_FALSE(decision_on(between(6, "Clip", bounds(1e6F, 1e7F)), "n").low);
}

TEST(PinnedConstants, ABoundThatNothingPassesMayBecomeInfinite) {
  EXPECT_TRUE(decision_on(between(6, "Clip", bounds(-3e38F, 3e38F)), "n").low);
  EXPECT_FALSE(decision_on(between(6, "Clip", bounds(-3e38F, -1e6F)), "n").low);
  const auto as_inputs = [](float least, float most) {
    GraphBuilder g;
    g.input("x").weight("w").weight("least", {least}, {}).weight("most", {most}, {});
    g.node("MatMul", {"x", "w"}, {"m"}).node("Clip", {"m", "least", "most"}, {"n"});
    return model(g.node("MatMul", {"n", "w"}, {"y"}).output("y").take());
  };
  EXPECT_TRUE(decision_on(as_inputs(-3e38F, 3e38F), "n").low);
  EXPECT_FALSE(decision_on(as_inputs(1e6F, 1e7F), "n").low);
}

TEST(PinnedConstants, BordersInAttributesKeepTheirSize) {
  EXPECT_TRUE(decision_on(between(2, "Pad", border(0)), "n").low);
  EXPECT_FALSE(decision_on(between(2, "Pad", border(-1e9F)), "n").low);
  std::vector<Message> outside;
  outside.push_back(float_attribute("extrapolation_value", 1e9F));
  EXPECT_FALSE(decision_on(between(13, "Resize", std::move(outside)), "n").low);
}

// In one branch a constant, in the other a product; a product reads either.
Message branched(float value) {
  GraphBuilder then("then");
  then.node("Constant", {}, {"c"}, tensor_attribute("value", floats("", {2, 2}, {value, 0, 0, 0})));
  GraphBuilder other("else");
  other.node("MatMul", {"x", "w"}, {"e"});
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w");
  g.node("If", {"flag"}, {"r"}, body_attribute("then_branch", then.output("c").take()),
         body_attribute("else_branch", other.output("e").take()));
  return model(g.node("MatMul", {"r", "w"}, {"y"}).output("y").take());
}

TEST(PinnedConstants, WhatABodyGivesIsReadInFloatWhereItIsTooLarge) {
  EXPECT_TRUE(decision_on(branched(1), "y").low);
  const Decision decision = decision_on(branched(-1e9F), "y");
  EXPECT_FALSE(decision.low);
  EXPECT_THAT(decision.why, HasSubstr("constant 'c' reaches 1e+09"));
}

// Each If gives from both branches what the one before gave; the first gives the constant.
Message handed_on(int length) {
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w").weight("y0", {1e6F, 0, 0, 0});
  for (int k = 1; k <= length; ++k) {
    const std::string before = "y" + std::to_string(k - 1);
    g.node("If", {"flag"}, {"y" + std::to_string(k)},
           body_attribute("then_branch", GraphBuilder("then").output(before).take()),
           body_attribute("else_branch", GraphBuilder("else").output(before).take()));
  }
  g.node("MatMul", {"x", "y" + std::to_string(length)}, {"y"});
  return model(g.output("y").take());
}

TEST(PinnedConstants, WhatManyBodiesHandOnIsFollowedOnce) {
  for (const int length : {2, 40, 20000}) {
    const Decision decision = decision_on(handed_on(length), "y");
    EXPECT_FALSE(decision.low) << length;
    EXPECT_THAT(decision.why, HasSubstr("constant 'y0' reaches 1e+06")) << length;
  }
}

class PinnedConstantsInFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("pin_constants");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }
  Result convert(const Message& made) {
    save(folder_ / "in.onnx", made);
    return convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
  }

  fs::path folder_;
  Options options_;
};

TEST_F(PinnedConstantsInFiles, APlanThatWantsThemLowDoesNotFit) {
  options_.included_names = {"f"};
  const Plan plan = convert(masked(-1e4F)).plan;
  save(folder_ / "other.onnx", masked(-1e9F));
  try {
    apply_plan(folder_ / "other.onnx", folder_ / "out.onnx", plan);
    ADD_FAILURE() << "applied";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the plan does not fit this checkpoint"));
    EXPECT_THAT(error.what(), HasSubstr("'f' (ConstantOfShape) reaches 1e+09"));
  }
}

TEST_F(PinnedConstantsInFiles, IncludedByNameTheyAreWarnedOfAndCounted) {
  options_.included_names = {"f"};
  const Report report = convert(masked(-1e9F)).report;
  EXPECT_EQ(report.infinite_values, 1);
  EXPECT_THAT(report.warnings, Contains(HasSubstr("is included by name, though the value of")));
}

TEST_F(PinnedConstantsInFiles, DefaultsAndOutputsInTheTypeAskedForAreWarnedOf) {
  GraphBuilder g;
  g.input("x").input("w").weight("w", {1e9F, 1, 1, 1}).weight("c", {1e-9F, 0, 0, 0});
  g.node("MatMul", {"x", "w"}, {"y"}).output("y").output("c");
  options_.io = "low";
  EXPECT_THAT(convert(model(g.take())).report.warnings,
              testing::UnorderedElementsAre(
                  HasSubstr("the default of input 'w' is rounded to float16, though"),
                  HasSubstr("the output 'c' is asked for in float16, though")));
}

}  // namespace
}  // namespace mezzo::convert
