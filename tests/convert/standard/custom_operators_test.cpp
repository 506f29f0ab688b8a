// Operators that the standard does not know, described in files.
#include "convert/standard/custom_operators.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::string_view kBlur = R"(
["acme::Blur"]
inputs = ["image: T", "kernel: T", "steps: int64?", "more: S*"]
outputs = ["image: T"]
types = {T = ["float32", "float16"], S = ["float32"]}
class = "target_dtype"
why = "a convolution"
)";

class CustomOperatorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("custom_operators");
    options_.cast_optional_params = true;
    options_.verify = "none";
    save(folder_ / "acme.toml", std::string(kBlur));
  }

  Result convert(Message graph, int opset = 17) {
    Message made = model(std::move(graph), opset);
    for (const char* domain : {"acme", "com.microsoft"})
      made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, domain)));
    save(folder_ / "in.onnx", made);
    return convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
  }

  static Message blurred() {
    GraphBuilder g;
    g.input("x").weight("w").in_domain("acme").node("Blur", {"x", "w"}, {"y"});
    return g.output("y").take();
  }

  static Decision decision_on(const Result& result, const std::string& key,
                              const std::string& variable = "T") {
    for (const Decision& decision : result.plan.decisions) {
      if (decision.key == key && decision.variable == variable) return decision;
    }
    return {};
  }

  fs::path folder_;
  Options options_;
};

TEST_F(CustomOperatorsTest, StayFloatWhereNothingDescribesThem) {
  const Result result = convert(blurred());
  EXPECT_TRUE(result.report.unchanged);
  EXPECT_THAT(result.plan.decisions, IsEmpty());
  ASSERT_THAT(result.report.decisions, SizeIs(1));
  const Decision& decision = result.report.decisions[0];
  EXPECT_EQ(decision.op, "acme::Blur");
  EXPECT_FALSE(decision.low);
  EXPECT_EQ(decision.rule, "schema");
  EXPECT_THAT(decision.why, HasSubstr("operators of domain acme are left as they are"));
  EXPECT_THAT(result.report.warnings,
              testing::ElementsAre(HasSubstr("1 node of domain acme: described by nothing")));
  EXPECT_THAT(result.report.to_text(), HasSubstr("1 x schema: operators of domain acme"));
}

TEST_F(CustomOperatorsTest, GoLowAsTheirDescriptionSays) {
  options_.custom_operators = {folder_ / "acme.toml"};
  const Result result = convert(blurred());
  EXPECT_TRUE(decision_on(result, "y").low);
  EXPECT_THAT(decision_on(result, "y").why, HasSubstr("a convolution"));
  EXPECT_EQ(weight_types(folder_ / "out.onnx").at("w"), "float16");
  EXPECT_EQ(result.report.heavy_low_nodes, 1);
}

TEST_F(CustomOperatorsTest, KeepFloatWhatHasNoLowForm) {
  options_.custom_operators = {folder_ / "acme.toml"};
  GraphBuilder g;
  g.input("x").weight("w").weight("a").weight("b");
  g.in_domain("acme").node("Blur", {"x", "w", "", "a", "b"}, {"y"}).output("y");
  const Result result = convert(g.take());
  EXPECT_TRUE(decision_on(result, "y").low);
  EXPECT_FALSE(decision_on(result, "y", "S").low);
  EXPECT_EQ(weight_types(folder_ / "out.onnx").at("b"), "float32");

  options_.target_dtype = "bfloat16";
  EXPECT_THAT(decision_on(convert(blurred()), "y").why, HasSubstr("takes no bfloat16"));
}

TEST_F(CustomOperatorsTest, AreInListsByTheirWholeName) {
  options_.custom_operators = {folder_ / "acme.toml"};
  options_.fp32_ops = {"+acme::Blur"};
  EXPECT_FALSE(decision_on(convert(blurred()), "y").low);
  options_.fp32_ops.reset();
  options_.target_dtype_ops = {"-acme::Blur"};
  EXPECT_FALSE(decision_on(convert(blurred()), "y").low);
  options_.target_dtype_ops = {"Conv"};  // replaces the list, Blur's default with it
  EXPECT_FALSE(decision_on(convert(blurred()), "y").low);
  options_.target_dtype_ops = {"acme::Blue"};
  EXPECT_THROW(convert(blurred()), ConfigError);
  options_.target_dtype_ops.reset();
  options_.excluded_inputs = {"acme::Blur:0"};
  EXPECT_FALSE(decision_on(convert(blurred()), "y").low);
}

TEST_F(CustomOperatorsTest, AreInThePlanThatIsAppliedAgain) {
  options_.custom_operators = {folder_ / "acme.toml"};
  const Plan plan = Plan::from_json(convert(blurred()).plan.to_json());
  EXPECT_THAT(plan.custom_operators, SizeIs(1));
  fs::remove(folder_ / "acme.toml");
  apply_plan(folder_ / "in.onnx", folder_ / "again.onnx", plan);
  EXPECT_EQ(contents(folder_ / "again.onnx"), contents(folder_ / "out.onnx"));
}

TEST_F(CustomOperatorsTest, OfOnnxRuntimeAreKnown) {
  GraphBuilder g;
  g.input("x").weight("w").weight("b", {1, 2}, {2});
  g.in_domain("com.microsoft").node("FusedMatMul", {"x", "w"}, {"p"}, attribute("transB", 1));
  g.in_domain("com.microsoft").node("BiasGelu", {"p", "b"}, {"q"});
  g.in_domain("com.microsoft").node("FusedMatMul", {"q", "w"}, {"y"}).output("y");
  const Result result = convert(g.take());
  EXPECT_TRUE(decision_on(result, "p").low);
  EXPECT_FALSE(decision_on(result, "q").low);
  EXPECT_THAT(decision_on(result, "q").why, HasSubstr("steep"));
  EXPECT_TRUE(decision_on(result, "y").low);
  EXPECT_EQ(result.report.heavy_nodes, 2);
  EXPECT_EQ(result.report.heavy_low_nodes, 2);
}

// ONNX Runtime has operators of its own in the standard's domain, too.
TEST_F(CustomOperatorsTest, OfOnnxRuntimeInTheStandardsDomainAreKnown) {
  GraphBuilder g;
  g.input("x").weight("w").weight("s", {1, 2}, {2});
  g.node("MatMul", {"x", "w"}, {"p"}).node("SimplifiedLayerNormalization", {"p", "s"}, {"q"});
  g.node("LayerNormalization", {"q", "s"}, {"r"}).node("MatMul", {"r", "w"}, {"y"}).output("y");
  const Result result = convert(g.take(), 13);
  EXPECT_THAT(result.report.warnings, IsEmpty());
  EXPECT_FALSE(decision_on(result, "q", "V").low);
  EXPECT_FALSE(decision_on(result, "r", "V").low);
  EXPECT_TRUE(decision_on(result, "y").low);
}

// A node that contradicts its description is a fault of the model, as with the standard's.
TEST_F(CustomOperatorsTest, ThatContradictTheirDescriptionAreReported) {
  GraphBuilder g;
  g.input("x").in_domain("com.microsoft").node("BiasGelu", {"x"}, {"y"}).output("y");
  const Result result = convert(g.take());
  ASSERT_THAT(result.report.warnings, SizeIs(1));
  EXPECT_THAT(result.report.warnings[0], HasSubstr("has 1 inputs; it takes 2 to 2"));
}

TEST_F(CustomOperatorsTest, OfALaterFileReplaceOthers) {
  save(folder_ / "mine.toml",
       "[\"com.microsoft::FusedMatMul\"]\ninputs = [\"T\", \"T\"]\noutputs = [\"T\"]\n"
       "types.T = [\"float32\"]\n");
  options_.custom_operators = {folder_ / "mine.toml"};
  GraphBuilder g;
  g.input("x").in_domain("com.microsoft").node("FusedMatMul", {"x", "x"}, {"y"}).output("y");
  EXPECT_FALSE(decision_on(convert(g.take()), "y").low);
}

TEST(CustomOperators, FilesWithErrorsNameTheLine) {
  struct Case {
    std::string_view text, message;
  };
  constexpr std::string_view kHead = "[\"a::B\"]\n";
  const Case cases[] = {
      {"inputs = [", "line 1: "},
      {"B = 3", "line 1: 'B' is no table"},
      {"[\"::B\"]\ninputs=[]\noutputs=[]", "expected 'domain::Operator'"},
      {"[\"a::\"]\ninputs=[]\noutputs=[]", "expected 'domain::Operator'"},
      {"[\"a::B\"]\noutputs=[]", "line 1: 'B' has no inputs"},
      {"[\"a::B\"]\ninputs=[]", "'B' has no outputs"},
      {"[\"a::B\"]\ninputs=[3]", "line 2: 'inputs' holds what is no text"},
      {"[\"a::B\"]\ninputs=3", "line 2: 'inputs' is no list"},
      {"[\"a::B\"]\ninputs=['T']", "'T': 'T' is neither a type nor under 'types'"},
      {"[\"a::B\"]\ninputs=['T*', 'T']\ntypes.T=['float32']", "is not the last"},
      {"[\"a::B\"]\ninput=[]", "unknown key 'input'; did you mean 'inputs'?"},
      {"[\"a::B\"]\ntypes=3", "'types' is no table"},
      {"[\"a::B\"]\ntypes.T=[]", "'T' may have no type"},
      {"[\"a::B\"]\ntypes.T=['float31']", "line 2: unknown type 'float31'"},
      {"[\"a::B\"]\ntypes.int64=['int64']", "'int64' is a type, not a variable"},
      {"[\"a::B\"]\ninputs=[]\noutputs=[]\nclass='low'", "line 4: class 'low'; expected"},
      {"[\"a::B\"]\ninputs=[]\noutputs=[]\nwhy=1", "'why' is no text"},
  };
  for (const auto& [text, message] : cases) {
    CustomOperators operators;
    try {
      operators.add(text, "file.toml");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("[file.toml] line ")) << text;
      EXPECT_THAT(error.what(), HasSubstr(message)) << text;
    }
  }
  CustomOperators operators;
  operators.add(std::string(kHead) + "inputs = []\noutputs = []", "file.toml");
  EXPECT_NE(operators.find("a::B"), nullptr);
  EXPECT_EQ(operators.find("a::C"), nullptr);
}

TEST_F(CustomOperatorsTest, FilesThatCannotBeReadAreErrors) {
  options_.custom_operators = {folder_ / "none.toml"};
  EXPECT_THROW(convert(blurred()), ConfigError);
}

}  // namespace
}  // namespace mezzo::convert
