// Casts that a model brings along.
#include <gmock/gmock.h>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class CastsOfModels : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("casts_of_models");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  // The number of Casts after a conversion of `g`, whose result is sound.
  std::int64_t casts_after(GraphBuilder& g, int opset = 17) {
    save(folder_ / "in.onnx", model(g.take(), opset));
    convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
    const Inspection result = inspect_model(folder_ / "out.onnx");
    EXPECT_THAT(result.findings, testing::IsEmpty());
    const auto found = result.operators.find("Cast");
    return found == result.operators.end() ? 0 : found->second;
  }

  fs::path folder_;
  Options options_;
};

// A float16 input, cast up for a product.
GraphBuilder product() {
  GraphBuilder g;
  g.input("x", Element::kFloat16).weight("w").node("Cast", {"x"}, {"f"}, attribute("to", 1));
  g.add(field::graph::kValueInfo, value_info("f", Element::kFloat, {2, 2}));
  g.node("MatMul", {"f", "w"}, {"y"}).output("y");
  return g;
}

TEST_F(CastsOfModels, GoWhereNobodyReadsThemAnyMore) {
  GraphBuilder g = product();
  EXPECT_EQ(casts_after(g), 1) << "that of the output";
}

TEST_F(CastsOfModels, StayWhereSomebodyReadsThem) {
  GraphBuilder read = product();
  EXPECT_EQ(casts_after(read.node("Softmax", {"f"}, {"s"}).output("s")), 2);
  GraphBuilder given = product();
  EXPECT_EQ(casts_after(given.output("f")), 2);
}

TEST_F(CastsOfModels, StayWhereNothingIsConverted) {
  options_.excluded_names = {"*"};
  GraphBuilder g = product();
  EXPECT_EQ(casts_after(g), 1);
  EXPECT_EQ(contents(folder_ / "out.onnx"), contents(folder_ / "in.onnx"));
}

TEST_F(CastsOfModels, GoInBodiesToo) {
  GraphBuilder then("then");
  then.node("Cast", {"x"}, {"f"}, attribute("to", 1)).node("MatMul", {"f", "w"}, {"t"});
  GraphBuilder other("else");
  other.node("MatMul", {"w", "w"}, {"e"});
  GraphBuilder g;
  g.input("x", Element::kFloat16).input("flag", Element::kBool, {}).weight("w");
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.output("t").take()),
         body_attribute("else_branch", other.output("e").take()));
  options_.io = "low";
  EXPECT_EQ(casts_after(g.output("y")), 0);
}

// An optional's element has the optional's type, and so has a tensor that is given as it is.
TEST_F(CastsOfModels, AreNoneAroundAnElementThatIsTheTensorItself) {
  options_.io = "low";
  GraphBuilder g;
  g.input("x").node("OptionalGetElement", {"x"}, {"y"});
  EXPECT_EQ(casts_after(g.output("y"), 18), 0);
}

}  // namespace
}  // namespace mezzo::convert
