// Nodes with bodies in names, plans and reports.
#include <gmock/gmock.h>

#include "builder.h"
#include "convert/graph/graph.h"
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

// Does every body and function give what one of its own nodes makes?
bool gives_its_own(const fs::path& path) {
  Document document(path);
  const Graph graph(document);
  bool is_own = graph.scopes.size() > 1;
  for (std::size_t i = 1; i < graph.scopes.size(); ++i) {
    for (const ValueId out : graph.scopes[i].outputs) {
      const Value& value = graph.value(out);
      is_own = is_own && value.producer != kNone && value.scope == static_cast<ScopeId>(i);
    }
  }
  return is_own;
}

// Up and down again is the identity; but a body must not give what it only sees.
TEST_F(Bodies, GiveNoValueFromOutside) {
  const auto branch = [](const std::string& name, const std::string& out) {
    GraphBuilder g(name);
    return body_attribute(name,
                          g.node("Cast", {"h"}, {out}, attribute("to", 1)).output(out).take());
  };
  GraphBuilder g;
  g.input("h", Element::kFloat16).input("flag", Element::kBool, {}).weight("w");
  g.node("If", {"flag"}, {"r"}, branch("then_branch", "t"), branch("else_branch", "e"));
  save(folder_ / "in.onnx", model(g.node("MatMul", {"r", "w"}, {"y"}).output("y").take()));
  const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report;
  EXPECT_EQ(report.heavy_low_nodes, 1);
  EXPECT_TRUE(gives_its_own(folder_ / "out.onnx"));
  EXPECT_THAT(inspect_model(folder_ / "out.onnx").findings, testing::IsEmpty());
}

Message function_of(const std::vector<std::string>& inputs, const std::string& output,
                    GraphBuilder nodes) {
  Message function;
  function.add(field::function::kName, std::string_view("F"));
  for (const std::string& in : inputs) function.add(field::function::kInput, kept(in));
  function.add(field::function::kOutput, kept(output));
  Message graph = nodes.take();
  for (Field& field : graph.fields()) {
    if (field.number == field::graph::kNode)
      function.add(field::function::kNode, std::move(field.message));
  }
  function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  function.add(field::function::kDomain, std::string_view("my"));
  return function;
}

Message with_function(Message graph, Message function) {
  Message made = model(std::move(graph));
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  return made;
}

TEST_F(Bodies, OfFunctionsGiveNotWhatTheyAreGiven) {
  GraphBuilder nodes;
  nodes.node("Cast", {"a"}, {"t"}, attribute("to", 1));
  GraphBuilder g;
  g.input("h", Element::kFloat16).weight("w").in_domain("my").node("F", {"h"}, {"r"});
  save(folder_ / "in.onnx", with_function(g.node("MatMul", {"r", "w"}, {"y"}).output("y").take(),
                                          function_of({"a"}, "t", std::move(nodes))));
  convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
  EXPECT_TRUE(gives_its_own(folder_ / "out.onnx"));
}

// A loop carries a double that its body declares as float, or the other way about.
Message misdeclared(Element declared, Element given) {
  GraphBuilder body("body");
  body.input("i", Element::kInt64, {}).input("c", Element::kBool, {}).input("s", declared);
  body.node("Identity", {"c"}, {"going"}).node("Neg", {"s"}, {"next"});
  body.output("going", Element::kBool, {}).output("next", given);
  GraphBuilder nodes;
  nodes.node("MatMul", {"a", "w"}, {"m"});
  nodes.named("l").node("Loop", {"turns", "", given == Element::kFloat ? "m" : "d"}, {"n"},
                        body_attribute("body", body.take()));
  nodes.node("Cast", {"n"}, {"f"}, attribute("to", 1)).node("MatMul", {"f", "w"}, {"r"});
  GraphBuilder g;
  g.input("x").input("d", Element::kDouble).input("turns", Element::kInt64, {}).weight("w");
  g.named("c").in_domain("my").node("F", {"x", "w", "d", "turns"}, {"y"});
  return with_function(g.output("y").take(),
                       function_of({"a", "w", "d", "turns"}, "r", std::move(nodes)));
}

TEST_F(Bodies, WrongBeforeMayStayWrong) {
  const auto findings = [&](Element declared, Element given) {
    save(folder_ / "in.onnx", misdeclared(declared, given));
    options_.target_dtype_ops = std::vector<std::string>{"+Neg"};
    const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report;
    EXPECT_GE(report.heavy_low_nodes, 1);
    EXPECT_THAT(report.warnings, testing::Contains(testing::HasSubstr("the input is not valid")));
    return inspect_model(folder_ / "out.onnx").findings;
  };
  using testing::ElementsAre;
  using testing::HasSubstr;
  EXPECT_THAT(findings(Element::kFloat, Element::kDouble),
              ElementsAre(HasSubstr("is declared tensor(float32) and is tensor(float64)")));
  EXPECT_THAT(findings(Element::kDouble, Element::kFloat),
              ElementsAre(HasSubstr("is declared tensor(float64) and is tensor(float16)")));
}

}  // namespace
}  // namespace mezzo::convert
