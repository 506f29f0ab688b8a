// Constants that options let be clamped or raised instead of keeping their readers float32.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "builder.h"
#include "convert/graph/check.h"
#include "convert/graph/graph.h"
#include "convert/onnx/document.h"
#include "convert/onnx/low.h"
#include "convert/rewrite/apply.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kSmallestNormal = 0x1p-14F;

class AdjustedConstants : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("adjusted_constants");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  Report convert(const Message& made) {
    save(folder_ / "in.onnx", made);
    const Report report = convert_model(folder_ / "in.onnx", out(), options_).report;
    EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
    return report;
  }
  fs::path out() const { return folder_ / "out.onnx"; }

  // The values of the constant that input `index` of the first such node reads, through a Cast too.
  std::vector<double> read_by(const std::string& op, std::size_t index) const {
    Document document(out());
    const Graph graph(document);
    for (const Node& node : graph.nodes) {
      if (node.op != op) continue;
      ValueId id = node.inputs.at(index);
      const NodeId maker = graph.value(id).producer;
      if (maker != kNone && graph.node(maker).op == "Cast") id = graph.node(maker).inputs[0];
      const Message* tensor = graph.constant(id);
      if (tensor != nullptr) return array_of(document, *tensor).values();
    }
    ADD_FAILURE() << "no constant is read by " << op;
    return {};
  }

  fs::path folder_;
  Options options_;
};

// x -> MatMul with w -> y.
Message product(const std::vector<float>& weights) {
  GraphBuilder g;
  g.input("x").weight("w", weights).node("MatMul", {"x", "w"}, {"y"});
  return model(g.output("y").take());
}

// The same with a weight that a node lists.
Message listed(float weight) {
  Message values;
  values.add(field::attribute::kName, std::string_view("value_floats"));
  values.add(field::attribute::kFloats,
             kept(std::string(reinterpret_cast<const char*>(&weight), sizeof(weight))));
  values.add(field::attribute::kType, std::uint64_t{6});
  GraphBuilder g;
  g.input("x", Element::kFloat, {2, 1}).node("Constant", {}, {"w"}, std::move(values));
  g.node("MatMul", {"x", "w"}, {"y"}).output("y", Element::kFloat, {2});
  return model(g.take());
}

std::string why_of(const Report& report, const std::string& key) {
  for (const Decision& decision : report.decisions) {
    if (decision.key == key) return decision.low ? "low" : decision.why;
  }
  return "is not there";
}

TEST_F(AdjustedConstants, WeightsBeyondTheRangeAreClampedWhereThatIsAsked) {
  const std::vector<float> weights{1e6F, -7e4F, 65519, 1};
  EXPECT_THAT(why_of(convert(product(weights)), "y"), HasSubstr("constant 'w' reaches 1e+06"));
  options_.clamp_weights = true;
  const Report report = convert(product(weights));
  EXPECT_EQ(why_of(report, "y"), "low");
  EXPECT_THAT(read_by("MatMul", 1), ElementsAre(65504, -65504, 65504, 1));
  ASSERT_THAT(report.adjusted, SizeIs(1));
  EXPECT_EQ(report.adjusted[0].constant, "w");
  EXPECT_EQ(report.adjusted[0].change, "clamped");
  EXPECT_EQ(report.adjusted[0].values, 2);
  EXPECT_EQ(report.adjusted[0].from, 1e6);
  EXPECT_EQ(report.adjusted[0].to, 65504);
  EXPECT_EQ(report.infinite_values, 0);
  EXPECT_THAT(report.to_text(), HasSubstr("clamped: 2 values of 'w', 1e+06 to 65504"));
  EXPECT_THAT(report.to_json(), HasSubstr("\"change\": \"clamped\""));
}

TEST_F(AdjustedConstants, InfinitiesAndNanStay) {
  options_.clamp_weights = true;
  convert(product({kInfinite, -kInfinite, std::nanf(""), -1e9F}));
  const std::vector<double> values = read_by("MatMul", 1);
  EXPECT_EQ(values[0], kInfinite);
  EXPECT_EQ(values[1], -kInfinite);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], -65504);
}

TEST_F(AdjustedConstants, BfloatHoldsAllButWhatRoundsUp) {
  options_.clamp_weights = true;
  options_.target_dtype = "bfloat16";
  const Report report = convert(product({kMost, -kMost, 1e38F, 1}));
  const double most = largest(Element::kBFloat16);
  EXPECT_THAT(read_by("MatMul", 1), ElementsAre(most, -most, testing::_, 1));
  EXPECT_EQ(report.adjusted.at(0).values, 2);
}

TEST_F(AdjustedConstants, NothingInRangeIsTouched) {
  convert(product({1, 2, 3, 65504}));
  const std::string plain = contents(out());
  options_.clamp_weights = options_.raise_epsilons = true;
  EXPECT_THAT(convert(product({1, 2, 3, 65504})).adjusted, IsEmpty());
  EXPECT_EQ(contents(out()), plain);
}

// Behind Casts at run time they would become infinite.
TEST_F(AdjustedConstants, HoweverWeightsAreStoredTheyAreClamped) {
  options_.clamp_weights = true;
  options_.cast_optional_params = false;
  EXPECT_EQ(why_of(convert(product({1e6F, 1, 1, 1})), "y"), "low");
  EXPECT_THAT(read_by("MatMul", 1), ElementsAre(65504, 1, 1, 1));

  std::vector<float> values(64, 1);
  values[7] = -1e6F;
  GraphBuilder g;
  g.input("x", Element::kFloat, {8, 8}).weight("w", values, {8, 8});
  g.node("MatMul", {"x", "w"}, {"y"}).output("y", Element::kFloat, {8, 8});
  options_.weights_only = true;
  const Report report = convert(model(g.take()));
  EXPECT_EQ(report.low_weights, 1);
  EXPECT_EQ(report.adjusted.at(0).from, -1e6);
  EXPECT_EQ(read_by("MatMul", 1).at(7), -65504);
  EXPECT_THAT(report.warnings, IsEmpty());
  options_.raise_epsilons = true;
  EXPECT_THAT(convert_model(folder_ / "in.onnx", out(), options_).report.warnings,
              ElementsAre(HasSubstr("raise_epsilons changes nothing")));
}

TEST_F(AdjustedConstants, AFloatReaderOfASharedWeightReadsWhatItWas) {
  options_.clamp_weights = true;
  options_.excluded_names = {"high"};
  GraphBuilder g;
  g.input("x").weight("w", {1e6F, 1, 1, 1}).node("MatMul", {"x", "w"}, {"a"});
  g.named("high").node("Gemm", {"a", "w"}, {"y"});
  convert(model(g.output("y").take()));
  EXPECT_THAT(read_by("MatMul", 1), ElementsAre(65504, 1, 1, 1));
  EXPECT_THAT(read_by("Gemm", 1), ElementsAre(1e6, 1, 1, 1));
}

TEST_F(AdjustedConstants, ConstantNodesInBodiesAndFunctionsAreClampedToo) {
  options_.clamp_weights = true;
  GraphBuilder then("then");
  then.node("Constant", {}, {"c"},
            tensor_attribute("value", floats("", {2, 2}, {1e6F, 0, 0, -1e6F})));
  then.node("MatMul", {"x", "c"}, {"t"});
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w");
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.output("t").take()),
         body_attribute("else_branch",
                        GraphBuilder("else").node("MatMul", {"x", "w"}, {"e"}).output("e").take()));
  const Report report = convert(model(g.output("y").take()));
  EXPECT_EQ(why_of(report, "y/then_branch/t"), "low");
  EXPECT_THAT(read_by("MatMul", 1), ElementsAre(65504, 0, 0, -65504));
  EXPECT_THAT(report.adjusted.at(0).scope, HasSubstr("then_branch"));
}

// A product, something done to it, and a product.
Message masked(const std::string& op, const std::vector<float>& mask,
               const std::vector<std::int64_t>& dims) {
  GraphBuilder g;
  g.input("x").weight("w").weight("mask", mask, dims).node("MatMul", {"x", "w"}, {"s"});
  g.node(op, {"s", "mask"}, {"m"}).node("MatMul", {"m", "w"}, {"y"});
  return model(g.output("y").take());
}

TEST_F(AdjustedConstants, MasksFactorsAndBoundsAreNoWeights) {
  options_.clamp_weights = true;
  EXPECT_THAT(why_of(convert(masked("Add", {-1e9F}, {})), "m"), HasSubstr("mask value 'mask'"));
  EXPECT_THAT(why_of(convert(masked("Add", {0, -kMost, 0, 0}, {2, 2})), "m"),
              HasSubstr("constant 'mask' reaches"));
  EXPECT_THAT(why_of(convert(masked("Mul", {1e9F}, {})), "m"), HasSubstr("mask value 'mask'"));
  EXPECT_THAT(why_of(convert(masked("Max", {1e6F}, {})), "m"), HasSubstr("mask value 'mask'"));
  // A bias that no mask could be, and a scale per column.
  EXPECT_EQ(why_of(convert(masked("Add", {1e6F, 1}, {2})), "m"), "low");
  EXPECT_EQ(why_of(convert(masked("Mul", {1e6F, 1}, {2})), "m"), "low");
  EXPECT_THAT(read_by("Mul", 1), ElementsAre(65504, 1));
}

TEST_F(AdjustedConstants, WhatIsIncludedByNameBecomesNoInfinityEither) {
  options_.clamp_weights = true;
  options_.included_names = {"m"};
  const Report report = convert(masked("Add", {-1e9F}, {}));
  EXPECT_THAT(read_by("Add", 1), ElementsAre(-65504));
  EXPECT_EQ(report.infinite_values, 0);
  EXPECT_THAT(report.warnings, testing::Contains(HasSubstr("is included by name, though")));
}

// Between two products a / OP(a, eps), or LAST(OP(a, eps), w).
Message guarded(const std::string& op, float eps, const std::string& last = "Div") {
  GraphBuilder g;
  g.input("x").weight("w").weight("eps", {eps}, {}).node("MatMul", {"x", "w"}, {"a"});
  g.node(op, {"a", "eps"}, {"n"});
  g.initializer(tensor<std::int64_t>("shape", Element::kInt64, {2}, {2, 2}));
  g.node("Expand", {"n", "shape"}, {"b"});
  last == "Div" ? g.node("Div", {"a", "b"}, {"q"}) : g.node(last, {"b", "w"}, {"q"});
  return model(g.node("MatMul", {"q", "w"}, {"y"}).output("y").take());
}

TEST_F(AdjustedConstants, EpsilonsAreRaisedWhereThatIsAsked) {
  for (const char* op : {"Add", "Max", "Clip"}) {
    options_.raise_epsilons = false;
    EXPECT_THAT(why_of(convert(guarded(op, 1e-12F)), "n"), HasSubstr("epsilon 'eps' is 1e-12"));
    options_.raise_epsilons = true;
    for (const bool stored : {true, false}) {
      options_.cast_optional_params = stored;
      const Report report = convert(guarded(op, 1e-12F));
      EXPECT_EQ(why_of(report, "n"), "low") << op;
      EXPECT_THAT(read_by(op, 1), ElementsAre(kSmallestNormal)) << op;
      EXPECT_EQ(report.adjusted.at(0).change, "raised");
      EXPECT_FLOAT_EQ(static_cast<float>(report.adjusted.at(0).from), 1e-12F);
      EXPECT_EQ(report.adjusted.at(0).to, kSmallestNormal);
      EXPECT_EQ(report.flushed_values, 0);
    }
  }
}

TEST_F(AdjustedConstants, SmallNumbersThatGuardNothingAreNoEpsilons) {
  options_.raise_epsilons = true;
  EXPECT_THAT(why_of(convert(guarded("Mul", 1e-12F)), "n"), HasSubstr("epsilon 'eps'"));
  EXPECT_THAT(why_of(convert(guarded("Add", 1e-12F, "MatMul")), "n"), HasSubstr("epsilon 'eps'"));
  EXPECT_THAT(convert(guarded("Add", 1e-3F)).adjusted, IsEmpty());
}

TEST_F(AdjustedConstants, BoundsInAttributesAreRaisedToo) {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"a"});
  g.node("Clip", {"a"}, {"n"}, float_attribute("min", 1e-12F)).node("Div", {"a", "n"}, {"y"});
  const Message made = model(g.output("y").take(), 10);
  EXPECT_THAT(why_of(convert(made), "n"), HasSubstr("min of node making 'n'"));
  options_.raise_epsilons = true;
  const Report report = convert(made);
  EXPECT_EQ(why_of(report, "n"), "low");
  EXPECT_EQ(report.adjusted.at(0).to, kSmallestNormal);
  Document document(out());
  const Graph graph(document);
  const auto clip = std::ranges::find(graph.nodes, "Clip", &Node::op);
  EXPECT_EQ(std::stof(graph.attribute_text(*clip, "min")), kSmallestNormal);
}

// Rounded at run time, as other constants are for a judge, they would be infinite or nothing.
TEST_F(AdjustedConstants, AJudgeSeesWhatIsStored) {
  options_.clamp_weights = options_.raise_epsilons = true;
  const ConvertPolicy policy(options_);
  for (const Message& made : {product({1e6F, 1, 1, 1}), guarded("Add", 1e-12F), listed(1e6F)}) {
    for (const Storage storage : {Storage::kEmulated, Storage::kEmulatedWeights}) {
      Document document(bytes_of(made));
      const Graph graph(document, policy.custom_operators());
      Constants constants(graph, policy.low());
      const Decisions decisions = decide(graph, policy, constants);
      const Changes changes = apply(document, graph, decisions, constants, policy.low(), storage);
      ASSERT_THAT(changes.adjusted, SizeIs(1));
      Document result(bytes_of(document.model()));
      const Graph after(result);
      EXPECT_THAT(check_graph(after), IsEmpty());
      std::vector<double> stored;
      for (const Value& value : after.values) {
        const Message* tensor = after.constant(static_cast<ValueId>(&value - after.values.data()));
        if (tensor == nullptr || value.type != tensor_of(Element::kFloat16)) continue;
        stored = array_of(result, *tensor).values();
      }
      ASSERT_THAT(stored, testing::Not(IsEmpty()));
      EXPECT_EQ(stored[0], changes.adjusted[0].to);
    }
  }
}

TEST_F(AdjustedConstants, APlanKeepsWhatWasAllowed) {
  options_.clamp_weights = options_.raise_epsilons = true;
  for (const Message& made : {product({1e6F, 1, 1, 1}), guarded("Add", 1e-12F)}) {
    save(folder_ / "in.onnx", made);
    const Plan plan = convert_model(folder_ / "in.onnx", out(), options_).plan;
    apply_plan(folder_ / "in.onnx", folder_ / "applied.onnx", Plan::from_json(plan.to_json()));
    EXPECT_EQ(contents(folder_ / "applied.onnx"), contents(out()));
    convert_model(out(), folder_ / "again.onnx", options_);
    EXPECT_EQ(contents(folder_ / "again.onnx"), contents(out()));
  }
}

}  // namespace
}  // namespace mezzo::convert
