// Weights stored in 16 bits and computed with in float32: whose, and what else of the options
// holds.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class WeightsOnly : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("weights_only");
    options_.weights_only = true;
    options_.verify = "none";
  }

  // x -> MatMul 'first' -> Relu -> MatMul 'second' -> y, and a weight that is an output itself.
  static Message two_products() {
    const std::vector<float> values(64, 0.5F);
    const std::vector<std::int64_t> square{8, 8};
    GraphBuilder g;
    g.input("x", Element::kFloat, square).weight("a", values, square).weight("b", values, square);
    g.weight("c", values, square);
    g.named("first").node("MatMul", {"x", "a"}, {"m"}).node("Relu", {"m"}, {"r"});
    g.named("second").node("Gemm", {"r", "b"}, {"y"}).output("y", Element::kFloat, square);
    return model(g.output("c", Element::kFloat, square).take());
  }

  Report convert(const Message& made) {
    save(in(), made);
    return convert_model(in(), out(), options_).report;
  }

  std::map<std::string, std::string> types() const { return weight_types(out()); }

  fs::path in() const { return folder_ / "in.onnx"; }
  fs::path out() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  Options options_;
};

TEST_F(WeightsOnly, ComputesInFloat) {
  GraphBuilder g;
  std::vector<float> values(64, 0.5F);
  g.input("x", Element::kFloat, {8, 8})
      .weight("w", values, {8, 8})
      .node("MatMul", {"x", "w"}, {"y"})
      .output("y", Element::kFloat, {8, 8});
  save(in(), model(g.take()));
  const Result result = convert_model(in(), out(), options_);
  EXPECT_EQ(types().at("w__f16"), "float16");
  EXPECT_EQ(result.report.heavy_low_nodes, 0);
}

// Up to IR 3 every initializer is an input, and old exporters write weights as nodes.
TEST_F(WeightsOnly, FindsWeightsWhereverTheyStand) {
  const std::vector<float> values(64, 0.5F);
  for (const int ir : {3, 4, 8}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {8, 8}).weight("w", values, {8, 8});
    if (ir == 3) g.input("w", Element::kFloat, {8, 8});
    g.node("Constant", {}, {"c"}, tensor_attribute("value", floats("", {8, 8}, values)));
    g.node("MatMul", {"x", "w"}, {"m"}).node("MatMul", {"m", "c"}, {"y"});
    save(in(), model(g.output("y", Element::kFloat, {8, 8}).take(), 9, ir));
    const Report report = convert_model(in(), out(), options_).report;
    EXPECT_EQ(report.low_weights, 2) << ir;
    EXPECT_EQ(report.casts.size(), 2U) << ir;
    EXPECT_EQ(types().at("w__f16"), "float16") << ir;
    EXPECT_THAT(inspect_model(out()).findings, testing::IsEmpty()) << ir;
    // Nothing is left to do.
    fs::copy_file(out(), folder_ / "again.onnx", fs::copy_options::overwrite_existing);
    EXPECT_EQ(
        convert_model(folder_ / "again.onnx", folder_ / "twice.onnx", options_).report.low_weights,
        0)
        << ir;
  }
}

TEST_F(WeightsOnly, NeedsACastBackFromTheirType) {
  const std::vector<float> values(64, 0.5F);
  GraphBuilder g;
  g.input("x", Element::kFloat, {8, 8}).weight("w", values, {8, 8});
  g.node("MatMul", {"x", "w"}, {"y"}).output("y", Element::kFloat, {8, 8});
  save(in(), model(g.take(), 11));
  options_.target_dtype = "bfloat16";
  const Report kept = convert_model(in(), out(), options_).report;
  EXPECT_TRUE(kept.unchanged);
  EXPECT_THAT(kept.warnings, testing::ElementsAre(testing::HasSubstr(
                                 "opset 11 has no Cast to bfloat16, the first that has is 13")));
  options_.opset = "auto";
  const Report raised = convert_model(in(), out(), options_).report;
  EXPECT_EQ(raised.opset_after, 13);
  EXPECT_EQ(raised.low_weights, 1);
}

TEST_F(WeightsOnly, InputsAndOutputsTakeTheTypesAskedFor) {
  options_.io = "low";
  const Report low = convert(two_products());
  EXPECT_EQ(low.low_weights, 2);
  EXPECT_EQ(low.heavy_low_nodes, 0);
  const Inspection inspected = inspect_model(out());
  EXPECT_THAT(inspected.inputs, ElementsAre("x: tensor(float16)[8, 8]"));
  EXPECT_THAT(inspected.outputs,
              ElementsAre("y: tensor(float16)[8, 8]", "c: tensor(float16)[8, 8]"));
  EXPECT_THAT(inspected.findings, IsEmpty());
  options_.io = "keep";
  options_.io_of = {{"y", "float16"}};
  convert(two_products());
  EXPECT_THAT(inspect_model(out()).outputs,
              ElementsAre("y: tensor(float16)[8, 8]", "c: tensor(float32)[8, 8]"));
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
}

TEST_F(WeightsOnly, WhatIsNamedToStayFloatKeepsItsWeights) {
  const auto stored = [&] {
    save(in(), two_products());
    Result result = convert_model(in(), out(), options_);
    const std::string direct = contents(out());
    apply_plan(in(), out(), Plan::from_json(result.plan.to_json()));
    EXPECT_EQ(contents(out()), direct);
    return types();
  };
  options_.excluded_names = {"sec*"};
  EXPECT_EQ(stored().count("a__f16"), 1U);
  EXPECT_EQ(stored().at("b"), "float32");
  options_.excluded_names.clear();
  options_.excluded_tensors = {"b"};
  EXPECT_EQ(stored().count("a__f16"), 1U);
  EXPECT_EQ(stored().at("b"), "float32");
  options_.excluded_tensors.clear();
  options_.excluded_inputs = {"MatMul:1"};
  EXPECT_EQ(stored().at("a"), "float32");
  options_.excluded_inputs.clear();
  options_.excluded_regions = {{"r", "y"}};
  EXPECT_EQ(stored().count("a__f16"), 1U);
  EXPECT_EQ(stored().at("b"), "float32");
  options_.excluded_regions.clear();
  options_.fp32_ops = std::vector<std::string>{"MatMul"};
  EXPECT_EQ(stored().at("a"), "float32");
  EXPECT_EQ(stored().count("b__f16"), 1U);
  options_.fp32_ops.reset();
  options_.conditional_fp32_ops = std::vector<Conditional>{{"Gemm", "transB", {"0"}}};
  EXPECT_EQ(stored().count("a__f16"), 1U);
  EXPECT_EQ(stored().at("b"), "float32");
}

// Integers are as many as their scales make them: rounding these moves every one.
TEST_F(WeightsOnly, QuantisedPartsKeepTheirScales) {
  const std::vector<std::int64_t> square{64, 64};
  const std::vector<float> scales(64, 0.1F);
  GraphBuilder g;
  g.input("x", Element::kFloat, square).weight("s", {0.1F}, {}).weight("scales", scales, {64});
  g.initializer(tensor("zero", Element::kInt8, {}, std::vector<std::int8_t>(1)));
  g.initializer(tensor("zeros", Element::kInt8, {64}, std::vector<std::int8_t>(64)));
  g.initializer(tensor("wq", Element::kInt8, square, std::vector<std::int8_t>(4096, 3)));
  g.node("QuantizeLinear", {"x", "s", "zero"}, {"q"});
  g.node("DequantizeLinear", {"q", "s", "zero"}, {"d"});
  g.node("DequantizeLinear", {"wq", "scales", "zeros"}, {"w"});
  g.node("MatMul", {"d", "w"}, {"m"}).node("QuantizeLinear", {"m", "s", "zero"}, {"mq"});
  g.node("QLinearMatMul", {"mq", "s", "zero", "wq", "scales", "zeros", "s", "zero"}, {"pq"});
  g.node("MatMulInteger", {"q", "wq"}, {"i"}).node("Cast", {"i"}, {"f"}, attribute("to", 1));
  g.node("Mul", {"f", "scales"}, {"y"});
  g.output("y", Element::kFloat, square).output("pq", Element::kInt8, square);
  const Report report = convert(model(g.take()));
  EXPECT_EQ(report.low_weights, 0);
  EXPECT_EQ(contents(out()), contents(in()));
}

TEST_F(WeightsOnly, WhatABodyGivesStaysInRange) {
  GraphBuilder large("then");
  large.weight("masked", std::vector<float>(64, -1e9F), {8, 8}).output("masked");
  GraphBuilder small("else");
  small.weight("ones", std::vector<float>(64, 1), {8, 8}).output("ones");
  GraphBuilder g;
  g.input("flag", Element::kBool, {});
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", large.take()),
         body_attribute("else_branch", small.take()));
  EXPECT_EQ(convert(model(g.output("y", Element::kFloat, {8, 8}).take())).low_weights, 1);
}

TEST_F(WeightsOnly, WhatAsksForLowArithmeticIsAWarning) {
  options_.target_dtype_ops = std::vector<std::string>{"Gemm"};
  options_.included_names = {"first"};
  EXPECT_THAT(convert(two_products()).warnings,
              ElementsAre(HasSubstr("target_dtype_ops changes nothing"),
                          HasSubstr("included_names changes nothing")));
}

// Rounding a frequency turns angles, however small it is: positions are large.
TEST_F(WeightsOnly, FrequenciesInFrontOfSinesStayFloat) {
  for (const float highest : {1.0F, 31416.0F}) {
    std::vector<float> frequencies(64);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = highest / static_cast<float>(i + 3);
    GraphBuilder g;
    g.input("x", Element::kFloat, {8, 1}).weight("frequencies", frequencies, {1, 64});
    g.weight("w", std::vector<float>(512, 0.1F), {64, 8});
    g.node("Mul", {"x", "frequencies"}, {"angle"}).node("Cos", {"angle"}, {"c"});
    g.node("MatMul", {"c", "w"}, {"y"});
    const Message made = model(g.output("y", Element::kFloat, {8, 8}).take());
    for (const char* dtype : {"float16", "bfloat16"}) {
      options_.target_dtype = dtype;
      convert(made);
      EXPECT_EQ(types()["frequencies"], "float32") << dtype;
      EXPECT_FALSE(types().contains("w")) << dtype;
    }
  }
}

}  // namespace
}  // namespace mezzo::convert
