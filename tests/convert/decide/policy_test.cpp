// The policy in MXNet's words, plans, reports, and what is refused.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "builder.h"
#include "convert/report/json.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class PolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("policy");
    options_.cast_optional_params = true;
    options_.verify = "none";
    save(in(), network());
  }

  // A residual network in small: convolutions, batch norms, pooling, a classifier.
  static Message network() {
    const std::vector<std::int64_t> image{1, 2, 4, 4};
    GraphBuilder g;
    g.input("data", Element::kFloat, image);
    for (const char* name : {"conv0.weight", "conv1.weight"})
      g.weight(name, {1, 0.5F, -1, 2}, {2, 2, 1, 1});
    for (const char* name : {"gamma", "beta", "mean", "var"}) g.weight(name, {1, 1}, {2});
    g.weight("fc.weight", {1, 2, 3, 4}).weight("fc.bias", {0.5F, 1}, {2});
    g.named("conv0").node("Conv", {"data", "conv0.weight"}, {"c0"});
    g.named("bn0").node("BatchNormalization", {"c0", "gamma", "beta", "mean", "var"}, {"b0"});
    g.named("relu0")
        .node("Relu", {"b0"}, {"r0"})
        .named("conv1")
        .node("Conv", {"r0", "conv1.weight"}, {"c1"});
    g.named("add")
        .node("Add", {"c1", "r0"}, {"s"})
        .named("pool")
        .node("GlobalAveragePool", {"s"}, {"p"});
    g.named("flat")
        .node("Flatten", {"p"}, {"f"})
        .named("fc")
        .node("Gemm", {"f", "fc.weight", "fc.bias"}, {"logits"});
    g.named("prob").node("Softmax", {"logits"}, {"y"}).output("y", Element::kFloat, {1, 2});
    return model(g.take());
  }

  bool is_low(const std::vector<Decision>& decisions, const std::string& key) const {
    for (const Decision& decision : decisions) {
      if (decision.key == key) return decision.low;
    }
    ADD_FAILURE() << key << " is not there";
    return false;
  }

  std::map<std::string, std::string> types() const { return weight_types(out()); }

  void expect_refused(const std::string& what) {
    try {
      convert_model(in(), out(), options_);
      ADD_FAILURE() << "not refused: " << what;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
    EXPECT_FALSE(fs::exists(out()));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something was left behind";
  }

  fs::path in() const { return folder_ / "in.onnx"; }
  fs::path out() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  Options options_;
};

TEST_F(PolicyTest, TheTutorialsListsGiveHalfConvolutionsAndAFloatBias) {
  options_.target_dtype_ops = std::vector<std::string>{"Conv"};
  options_.fp32_ops = std::vector<std::string>{"Softmax", "Gemm"};
  convert_model(in(), out(), options_);
  EXPECT_EQ(types().at("conv0.weight"), "float16");
  EXPECT_EQ(types().at("conv1.weight"), "float16");
  EXPECT_EQ(types().at("fc.bias"), "float32");
  EXPECT_EQ(types().at("fc.weight"), "float32");
}

TEST_F(PolicyTest, WithoutOptionalParametersWeightsStayFloatBehindCasts) {
  options_.cast_optional_params = false;
  const Result result = convert_model(in(), out(), options_);
  for (const auto& [name, type] : types()) EXPECT_EQ(type, "float32") << name;
  EXPECT_EQ(result.report.low_weights, 0);
  EXPECT_EQ(result.report.heavy_low_nodes, 3);
}

TEST_F(PolicyTest, GivenListsReplaceAndEditsEdit) {
  options_.target_dtype_ops = std::vector<std::string>{"-Gemm", "+Softmax"};
  const Plan plan = plan_model(in(), options_);
  EXPECT_TRUE(is_low(plan.decisions, "c0"));
  EXPECT_TRUE(is_low(plan.decisions, "y"));
}

TEST_F(PolicyTest, ConditionsLookAtDefaultsToo) {
  options_.conditional_fp32_ops = std::vector<Conditional>{{"Gemm", "transB", {"0"}}};
  options_.target_dtype_ops = std::vector<std::string>{"Conv"};
  EXPECT_FALSE(is_low(plan_model(in(), options_).decisions, "logits"));
}

TEST_F(PolicyTest, NamesAreExactGlobsOrExpressions) {
  for (const char* pattern : {"conv1", "c*1", "con??", "/conv[1-9]/"}) {
    options_.excluded_names = {pattern};
    const Plan plan = plan_model(in(), options_);
    EXPECT_FALSE(is_low(plan.decisions, "c1")) << pattern;
  }
  options_.excluded_names = {"nothing*"};
  EXPECT_THAT(convert_model(in(), out(), options_).report.warnings,
              Contains(HasSubstr("'nothing*' matches no node")));
}

TEST_F(PolicyTest, TensorsStayFloatWhereTheyAreMadeAndRead) {
  options_.excluded_tensors = {"r?"};  // made by a Relu, read by a convolution and an addition
  const Plan plan = plan_model(in(), options_);
  for (const char* key : {"r0", "c1", "s"}) EXPECT_FALSE(is_low(plan.decisions, key)) << key;
  for (const char* key : {"c0", "logits"}) EXPECT_TRUE(is_low(plan.decisions, key)) << key;
  options_.excluded_tensors = {"conv1.weight"};
  convert_model(in(), out(), options_);
  EXPECT_EQ(types().at("conv1.weight"), "float32");
  EXPECT_EQ(types().at("conv0.weight"), "float16");
  options_.excluded_tensors = {"nothing*"};
  EXPECT_THAT(convert_model(in(), out(), options_).report.warnings,
              Contains(HasSubstr("excluded tensor 'nothing*' matches no value")));
}

TEST_F(PolicyTest, InputsStayFloatByNodeAndByOperator) {
  options_.excluded_inputs = {"conv1:1"};
  EXPECT_FALSE(is_low(plan_model(in(), options_).decisions, "c1"));
  EXPECT_TRUE(is_low(plan_model(in(), options_).decisions, "c0"));
  options_.excluded_inputs = {"Conv:0"};
  EXPECT_FALSE(is_low(plan_model(in(), options_).decisions, "c0"));
  EXPECT_FALSE(is_low(plan_model(in(), options_).decisions, "c1"));
  EXPECT_TRUE(is_low(plan_model(in(), options_).decisions, "logits"));
  options_.excluded_inputs = {"Conv:7"};
  EXPECT_THAT(convert_model(in(), out(), options_).report.warnings,
              Contains(HasSubstr("excluded input 'Conv:7' matches no input")));
  fs::remove(out());
  for (const char* wrong : {"Conv", "Conv:", ":1", "Conv:x", "Conv:-1", "Conv:1x"}) {
    options_.excluded_inputs = {wrong};
    expect_refused("expected NODE:INDEX or OP:INDEX");
  }
  options_.excluded_inputs = {"conv1:0"};
  options_.included_names = {"conv1"};
  expect_refused("included by name 'conv1', and excluded as input 'conv1:0'");
}

TEST_F(PolicyTest, WhatCannotBeIsRefusedAndLeavesNothing) {
  options_.target_dtype = "float8";
  expect_refused("'float8'; expected float16 or bfloat16");
  options_.target_dtype = "float16";
  options_.fp32_ops = std::vector<std::string>{"Conv"};
  options_.target_dtype_ops = std::vector<std::string>{"Conv"};
  expect_refused("'Conv' is in fp32_ops and in target_dtype_ops");
  options_.fp32_ops = std::vector<std::string>{"Convolve"};
  options_.target_dtype_ops.reset();
  expect_refused("'Convolve'");
  options_.fp32_ops.reset();
  options_.excluded_names = {"conv0"};
  options_.included_names = {"conv*"};
  expect_refused("excluded by name 'conv0', and included by name 'conv*'");
  options_.excluded_names = {"/(/"};
  expect_refused("no regular expression");
  options_.excluded_names.clear();
  options_.included_names.clear();
  options_.io = "high";
  expect_refused("io 'high'; expected one of keep, low");
  options_.io = "keep";
  options_.io_of = {{"datum", "float16"}};
  expect_refused("'datum', which is no input or output");
  options_.io_of.clear();
  options_.profile = "cpu";
  expect_refused("profile 'cpu'");
  options_.profile = "spec";
  options_.target_dtype_ops = std::vector<std::string>{"-Relu"};
  expect_refused("takes 'Relu' out, which is not in that list");
  options_.target_dtype_ops.reset();
  options_.headroom = 0.5;
  expect_refused("headroom 0.5; expected 1 to 65504");
  options_.headroom = 4;
  options_.conditional_fp32_ops = std::vector<Conditional>{{"Conv", "grup", {"1"}}};
  expect_refused("the attribute 'grup', which Conv has in no opset");
}

TEST_F(PolicyTest, ListsMayNameWhatNothingDescribesWhereTheCallerAllowsIt) {
  options_.fp32_ops = std::vector<std::string>{"+acme::Blur", "+Gemm"};
  expect_refused("fp32_ops names 'acme::Blur', which no ONNX opset");
  options_.allow_unknown_ops = true;
  const Result result = convert_model(in(), out(), options_);
  EXPECT_FALSE(is_low(result.plan.decisions, "logits"));
  EXPECT_THAT(result.report.warnings,
              Contains(HasSubstr("fp32_ops names 'acme::Blur', which nothing describes")));
}

TEST_F(PolicyTest, OnlyFloatInputsAndOutputsChangeTheirTypes) {
  GraphBuilder g;
  g.input("flags", Element::kBool).input("half", Element::kFloat16).weight("w");
  g.node("Cast", {"flags"}, {"x"}, attribute("to", 1)).node("MatMul", {"x", "w"}, {"y"});
  g.node("Relu", {"half"}, {"z"}).output("y").output("z", Element::kFloat16);
  save(in(), model(g.take()));
  options_.io_of = {{"flags", "float16"}};
  expect_refused("io_of asks for 'flags' in float16, which is tensor(bool)");
  options_.io_of = {{"z", "float32"}};
  expect_refused("io_of asks for 'z' in float32, which is tensor(float16)");
  options_.io_of = {{"z", "float16"}, {"y", "float16"}};
  convert_model(in(), out(), options_);
  EXPECT_EQ(inspect_model(out()).outputs[0], "y: tensor(float16)[2, 2]");
}

TEST_F(PolicyTest, TheTypeHasOneNameInReports) {
  options_.target_dtype = "half";
  const Result result = convert_model(in(), out(), options_);
  EXPECT_EQ(result.report.target_dtype, "float16");
  EXPECT_EQ(result.plan.target_dtype, "float16");
}

TEST_F(PolicyTest, OneInputAloneMayGoLow) {
  options_.io_of = {{"data", "float16"}};
  const Result result = convert_model(in(), out(), options_);
  EXPECT_THAT(inspect_model(out()).inputs,
              testing::ElementsAre("data: tensor(float16)[1, 2, 4, 4]"));
  EXPECT_THAT(inspect_model(out()).outputs, testing::ElementsAre("y: tensor(float32)[1, 2]"));
}

TEST_F(PolicyTest, APlanIsAppliedToAnotherCheckpoint) {
  const Plan plan = Plan::from_json(plan_model(in(), options_).to_json());
  apply_plan(in(), out(), plan);
  const std::string planned = contents(out());
  convert_model(in(), folder_ / "direct.onnx", options_);
  EXPECT_EQ(planned, contents(folder_ / "direct.onnx"));

  GraphBuilder other;
  other.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
  save(folder_ / "other.onnx", model(other.take()));
  EXPECT_THROW(apply_plan(folder_ / "other.onnx", out(), plan), ConfigError);
  EXPECT_THROW(Plan::from_json("{\"format\": \"x\"}"), ConfigError);
  EXPECT_THROW(Plan::from_json("nonsense"), ConfigError);
}

TEST_F(PolicyTest, AnAllFloatPlanGivesTheInputsBytes) {
  options_.target_dtype_ops = std::vector<std::string>{};
  const Result result = convert_model(in(), out(), options_);
  EXPECT_TRUE(result.report.unchanged);
  EXPECT_EQ(contents(in()), contents(out()));
}

TEST_F(PolicyTest, TheInputIsNeverOverwritten) {
  EXPECT_THROW(convert_model(in(), in(), options_), ConfigError);
  fs::create_symlink(in(), folder_ / "link.onnx");
  EXPECT_THROW(convert_model(in(), folder_ / "link.onnx", options_), ConfigError);
  EXPECT_THROW(convert_model(in(), folder_, options_), ConfigError);
}

TEST_F(PolicyTest, DevicesAndPipesAreNotReplaced) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(convert_model(in(), pipe, options_), ConfigError);
  EXPECT_TRUE(fs::is_fifo(pipe));
  fs::rename(pipe, out().string() + ".data");
  EXPECT_THROW(convert_model(in(), out(), options_), ConfigError);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_THROW(convert_model(out().string() + ".data", out(), options_), Error);
}

TEST_F(PolicyTest, ReportsAreTextJsonAndOnePage) {
  const Report report = convert_model(in(), out(), options_).report;
  const ReadJson json = parse_json(report.to_json());
  EXPECT_EQ(json.at("decisions").size(), report.decisions.size());
  EXPECT_THAT(report.to_text(), HasSubstr("3 of 3 heavy ones"));
  EXPECT_LT(std::ranges::count(report.to_text(), '\n'), 20);
  EXPECT_THAT(report.to_html(), testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(report.to_html(), Not(HasSubstr("http")));
}

TEST(ReportText, CountsReasonsThatDifferInNamesAndNumbersTogether) {
  Report report;
  const auto keep = [&](const char* rule, const char* why) {
    Decision decision;
    decision.rule = rule;
    decision.why = why;
    report.decisions.push_back(decision);
  };
  keep("range", "'a/b' reaches only 7.043e-06 on the calibration data");
  keep("range", "'c' reaches only 1e-05 on the calibration data");
  keep("default", "Softmax: sums exponentials");
  keep("default", "Softmax: sums exponentials");
  keep("default", "Exp: grows");
  const std::string text = report.to_text();
  EXPECT_THAT(
      text,
      HasSubstr("  2 x 'a/b' reaches only 7.043e-06 on the calibration data, and the like\n"));
  EXPECT_THAT(text, HasSubstr("  2 x default: Softmax: sums exponentials\n"));
  EXPECT_THAT(text, HasSubstr("  1 x default: Exp: grows\n"));
}

TEST_F(PolicyTest, DamagedFilesGiveOneClearError) {
  const std::string good = contents(in());
  for (std::size_t size = 0; size < good.size(); size += 7) {
    save(folder_ / "cut.onnx", good.substr(0, size));
    try {
      convert_model(folder_ / "cut.onnx", out(), options_);
    } catch (const Error&) {
      continue;
    }
  }
  EXPECT_THROW(convert_model(folder_ / "missing.onnx", out(), options_), Error);
  save(folder_ / "empty.onnx", std::string());
  EXPECT_THROW(convert_model(folder_ / "empty.onnx", out(), options_), Error);
}

TEST_F(PolicyTest, ExternalDataStaysInItsFolder) {
  const auto with_location = [&](const std::string& location, const std::string& length = "4096") {
    Message weight;
    for (int i = 0; i < 2; ++i) weight.add(field::tensor::kDims, std::uint64_t{32});
    weight.add(field::tensor::kType, std::uint64_t{1});
    weight.add(field::tensor::kName, std::string_view("w"));
    weight.add(field::tensor::kLocation, std::uint64_t{1});
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"location", location}, {"length", length}}) {
      auto pair = std::make_unique<Message>();
      pair->add(field::pair::kKey, kept(key));
      pair->add(field::pair::kValue, kept(value));
      weight.add(field::tensor::kExternalData, std::move(pair));
    }
    GraphBuilder g;
    g.input("x", Element::kFloat, {32, 32});
    g.initializer(std::move(weight)).node("MatMul", {"x", "w"}, {"y"}).output("y");
    save(folder_ / "external.onnx", model(g.take()));
  };
  const std::vector<float> values(1024, 0.5F);
  save(folder_ / "w.bin", std::string(reinterpret_cast<const char*>(values.data()), 4096));
  with_location("w.bin");
  const Result result = convert_model(folder_ / "external.onnx", out(), options_);
  EXPECT_EQ(result.report.low_weights, 1);
  EXPECT_EQ(fs::file_size(out().string() + ".data"), 2048U);
  EXPECT_TRUE(convert_model(out(), folder_ / "again.onnx", options_).report.unchanged);
  fs::create_symlink("/etc/passwd", folder_ / "link.bin");
  for (const char* bad :
       {"/etc/passwd", "../w.bin", "a/../../w.bin", "link.bin", "missing.bin", ""}) {
    with_location(bad);
    EXPECT_THROW(convert_model(folder_ / "external.onnx", out(), options_), Error) << bad;
  }
  for (const char* bad : {"4097", "-1", "99999999999999999999", "many"}) {
    with_location("w.bin", bad);
    EXPECT_THROW(convert_model(folder_ / "external.onnx", out(), options_), Error) << bad;
  }
}

TEST_F(PolicyTest, TheDefaultListsAreDisjoint) {
  const auto low = list_lp16_ops("float16");
  EXPECT_THAT(low, Contains("Conv"));
  EXPECT_THAT(list_fp32_ops("float16"), Contains("Softmax"));
  EXPECT_THAT(list_widest_type_cast("bfloat16"), Contains("Add"));
  EXPECT_THAT(list_lp16_fp32_ops("float16"), Contains("Relu"));
  for (const std::string& op : list_fp32_ops("float16")) EXPECT_THAT(low, Not(Contains(op)));
  EXPECT_THROW(list_lp16_ops("int8"), ConfigError);
}

}  // namespace
}  // namespace mezzo::convert
