// Nodes with bodies in names, plans and reports.
#include <gmock/gmock.h>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class Bodies : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("bodies");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }
  void TearDown() override { fs::remove_all(folder_.parent_path()); }

  fs::path folder_;
  Options options_;
};

TEST_F(Bodies, AreNamedByNamingTheirNode) {
  const auto low = [&] {
    GraphBuilder then("then");
    then.node("Softmax", {"x"}, {"s"}).output("s");
    GraphBuilder other("else");
    other.node("Softmax", {"x"}, {"e"}).output("e");
    GraphBuilder g;
    g.input("x").input("flag", Element::kBool, {});
    g.named("choice").node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
                           body_attribute("else_branch", other.take()));
    save(folder_ / "if.onnx", model(g.output("y").take()));
    return convert_model(folder_ / "if.onnx", folder_ / "if16.onnx", options_).report.low_nodes;
  };
  EXPECT_EQ(low(), 0);
  options_.included_names = {"choice"};
  EXPECT_EQ(low(), 2);
}

// Nodes need no names of their own, and those of values in bodies may be there twice.
TEST_F(Bodies, OfEquallyNamedNodesAreToldApartByAPlan) {
  const auto branch = [](const char* op) {
    GraphBuilder g(op);
    return body_attribute("then_branch", g.node(op, {"x", "x"}, {"t"}).output("t").take());
  };
  const auto other = [] {
    GraphBuilder g("else");
    return body_attribute("else_branch", g.node("Identity", {"x"}, {"e"}).output("e").take());
  };
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {});
  g.named("same").node("If", {"flag"}, {"y"}, branch("MatMul"), other());
  g.named("same").node("If", {"flag"}, {"z"}, branch("Pow"), other());
  save(folder_ / "twins.onnx", model(g.output("y").output("z").take()));
  const Result direct = convert_model(folder_ / "twins.onnx", folder_ / "a.onnx", options_);
  EXPECT_EQ(direct.plan.decisions.at(0).key, "y/then_branch/t");
  const Plan read = Plan::from_json(direct.plan.to_json());
  apply_plan(folder_ / "twins.onnx", folder_ / "b.onnx", read);
  EXPECT_EQ(contents(folder_ / "a.onnx"), contents(folder_ / "b.onnx"));
  Plan twice = direct.plan;
  twice.decisions.push_back(twice.decisions.at(0));
  EXPECT_THROW(apply_plan(folder_ / "twins.onnx", folder_ / "b.onnx", twice), ConfigError);
}

TEST_F(Bodies, GiveWhatReportsTell) {
  GraphBuilder then("then");
  then.node("MatMul", {"x", "x"}, {"t"});
  GraphBuilder other("else");
  other.node("MatMul", {"x", "x"}, {"e"});
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {});
  g.node("If", {"flag"}, {"r"}, body_attribute("then_branch", then.output("t").take()),
         body_attribute("else_branch", other.output("e").take()));
  save(folder_ / "if.onnx", model(g.node("MatMul", {"r", "r"}, {"y"}).output("y").take()));
  const Report report = convert_model(folder_ / "if.onnx", folder_ / "if16.onnx", options_).report;
  const auto found = std::ranges::find(report.decisions, "If", &Decision::op);
  ASSERT_NE(found, report.decisions.end());
  EXPECT_EQ(found->variable, "r");
  EXPECT_TRUE(found->low);
}

}  // namespace
}  // namespace mezzo::convert
