// Every construct that ONNX graphs have and converters stumble over.
#include <gmock/gmock.h>

#include <functional>

#include "builder.h"
#include "convert/graph/check.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

class Constructs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("constructs");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  // Converts in both modes of inputs and outputs; the result of the last is left in `out`.
  Result convert(const Message& model) {
    save(in_(), model);
    for (const char* io : {"low", "keep"}) {
      options_.io = io;
      result_ = convert_model(in_(), out_(), options_);
      Document document(out_());
      const Graph graph(document);
      for (const Finding& finding : check_graph(graph)) ADD_FAILURE() << io << ": " << finding.what;
      const fs::path again = folder_ / "again.onnx";
      EXPECT_TRUE(convert_model(out_(), again, options_).report.unchanged) << io;
    }
    return result_;
  }

  // The type of a value of the result, by name, in any scope.
  std::string type_of(const std::string& name) {
    Document document(out_());
    const Graph graph(document);
    for (const Value& value : graph.values) {
      if (value.name == name) return name_of(value.type.element);
    }
    return "missing";
  }

  std::int64_t count(const std::string& op) {
    const auto operators = inspect_model(out_()).operators;
    const auto found = operators.find(op);
    return found == operators.end() ? 0 : found->second;
  }

  fs::path in_() const { return folder_ / "in.onnx"; }
  fs::path out_() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  Options options_;
  Result result_;
};

TEST_F(Constructs, AProductBetweenFloatInputsGetsOneCastPerValue) {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"x", "w"}, {"b"});
  g.node("MatMul", {"a", "b"}, {"y"}).output("y");
  const Result result = convert(model(g.take()));
  EXPECT_EQ(count("Cast"), 2);
  EXPECT_EQ(type_of("w"), "float16");
  EXPECT_EQ(result.report.heavy_low_nodes, 3);
}

TEST_F(Constructs, BothBranchesOfAnIfGiveOneType) {
  GraphBuilder then("then");
  then.node("MatMul", {"x", "w"}, {"t"}).output("t");
  GraphBuilder other("else");
  other.node("Identity", {"x"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("c", Element::kBool, {}).weight("w");
  g.node("If", {"c"}, {"r"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.node("MatMul", {"r", "w"}, {"y"}).output("y");
  const Result result = convert(model(g.take()));
  EXPECT_EQ(result.report.heavy_low_nodes, 2);
  EXPECT_EQ(type_of("r"), "float16");
  EXPECT_EQ(count("Cast"), 2) << "one down at the top, one up at the end";
}

TEST_F(Constructs, AnEmptyBranchAndACapturedInitializer) {
  GraphBuilder then("then");
  then.node("Conv", {"x", "k"}, {"t"}).output("t", Element::kFloat, {1, 1, 2, 2});
  GraphBuilder other("else");
  other.weight("fallback", {1, 2, 3, 4}, {1, 1, 2, 2})
      .output("fallback", Element::kFloat, {1, 1, 2, 2});
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 2, 2})
      .input("c", Element::kBool, {})
      .weight("k", {2}, {1, 1, 1, 1});
  g.node("If", {"c"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.output("y", Element::kFloat, {1, 1, 2, 2});
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 1);
  EXPECT_EQ(type_of("k"), "float16");
}

Message loop_body() {
  GraphBuilder body("body");
  body.input("i", Element::kInt64, {}).input("going", Element::kBool, {}).input("state");
  body.node("MatMul", {"state", "w"}, {"next"}).node("Identity", {"going"}, {"still"});
  body.node("Identity", {"next"}, {"seen"});
  return body.output("still", Element::kBool, {}).output("next").output("seen").take();
}

TEST_F(Constructs, ALoopCarriesTheLowTypeAndCastsOutside) {
  GraphBuilder g;
  g.input("n", Element::kInt64, {}).input("c", Element::kBool, {}).input("x").weight("w");
  g.node("Loop", {"n", "c", "x"}, {"y", "all"}, body_attribute("body", loop_body()));
  g.output("y").output("all", Element::kFloat, {-1, 2, 2});
  const Result result = convert(model(g.take()));
  EXPECT_EQ(result.report.heavy_low_nodes, 1);
  for (const CastReport& cast : result.report.casts) EXPECT_EQ(cast.scope, "") << cast.value;
}

TEST_F(Constructs, AScanKeepsStatesAndSlicesTogether) {
  GraphBuilder body("body");
  body.input("s").input("row", Element::kFloat, {2, 2});
  body.node("MatMul", {"s", "row"}, {"t"}).node("Identity", {"t"}, {"o"}).output("t").output("o");
  GraphBuilder g;
  g.input("s0").input("xs", Element::kFloat, {3, 2, 2});
  g.node("Scan", {"s0", "xs"}, {"s1", "ys"}, body_attribute("body", body.take()),
         attribute("num_scan_inputs", std::int64_t{1}));
  g.output("s1").output("ys", Element::kFloat, {3, 2, 2});
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 1);
}

TEST_F(Constructs, ACaptureIsCastInItsDefiningScope) {
  GraphBuilder then("then");
  then.node("MatMul", {"h", "w"}, {"t"}).output("t");
  GraphBuilder other("else");
  other.node("MatMul", {"h", "w"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("c", Element::kBool, {}).weight("w").node("Softmax", {"x"}, {"h"});
  g.node("If", {"c"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.output("y");
  const Result result = convert(model(g.take()));
  EXPECT_EQ(count("Cast"), 2);
  EXPECT_EQ(result.report.casts[0].scope, "");
}

TEST_F(Constructs, FunctionsAreSpecialisedPerTypes) {
  Message function;
  function.add(field::function::kName, std::string_view("Twice"));
  function.add(field::function::kInput, std::string_view("a"));
  function.add(field::function::kInput, std::string_view("b"));
  function.add(field::function::kOutput, std::string_view("r"));
  GraphBuilder nodes;
  nodes.node("MatMul", {"a", "b"}, {"m"}).node("MatMul", {"m", "b"}, {"r"});
  Message graph = nodes.take();
  for (Field& field : graph.fields()) {
    if (field.number == field::graph::kNode) {
      function.add(field::function::kNode, std::make_unique<Message>(field.open().clone()));
    }
  }
  function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  function.add(field::function::kDomain, std::string_view("local"));
  GraphBuilder g;
  g.input("x").weight("w").input("d", Element::kDouble).weight("wd");
  g.in_domain("local").node("Twice", {"x", "w"}, {"y"}).output("y");
  g.node("Cast", {"w"}, {"w64"}, attribute("to", std::int64_t{11}));
  g.in_domain("local").node("Twice", {"d", "w64"}, {"z"}).output("z", Element::kDouble);
  Message m = model(g.take());
  m.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "local")));
  m.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  const Result result = convert(m);
  EXPECT_EQ(result.report.heavy_low_nodes, 2);
  EXPECT_EQ(count("local::Twice__f16"), 1);
  EXPECT_EQ(count("local::Twice"), 1) << "the double call stays as it is";
}

TEST_F(Constructs, SequencesStayOfOneType) {
  GraphBuilder g;
  g.input("x").input("i", Element::kInt64, {}).weight("w").node("MatMul", {"x", "w"}, {"m"});
  g.node("SequenceConstruct", {"m", "x"}, {"s"}).node("SequenceAt", {"s", "i"}, {"a"});
  g.node("MatMul", {"a", "w"}, {"y"}).output("y");
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 2);
  EXPECT_EQ(type_of("s"), "float16");
}

TEST_F(Constructs, InputsThatAreOutputsAndValuesThatAreOutputsTwice) {
  GraphBuilder g;
  g.input("x").weight("w").output("x").output("w");
  g.node("MatMul", {"x", "w"}, {"y"}).output("y").output("y");
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 1);
  EXPECT_EQ(type_of("w"), "float32");
}

// bfloat16 enters loops from opset 16 on: the loop keeps float32, its low input stays low.
TEST_F(Constructs, ALowInputThatALoopTakesAsFloatMayBeAnOutputToo) {
  GraphBuilder g;
  g.input("n", Element::kInt64, {}).input("c", Element::kBool, {}).input("x").weight("w");
  g.node("Loop", {"n", "c", "x"}, {"y", "all"}, body_attribute("body", loop_body()));
  g.output("y").output("all", Element::kFloat, {-1, 2, 2}).output("x");
  options_.target_dtype = "bfloat16";
  convert(model(g.take(), 15));
  options_.io = "low";
  convert_model(in_(), out_(), options_);
  EXPECT_THAT(inspect_model(out_()).outputs, Contains(HasSubstr("x: tensor(bfloat16)")));
  EXPECT_EQ(type_of("state"), "float32");
}

TEST_F(Constructs, UnnamedAndEquallyNamedNodesGetDistinctCasts) {
  GraphBuilder g;
  g.input("x").input("x__f16", Element::kInt64).weight("w");
  g.named("n").node("MatMul", {"x", "w"}, {"a"}).named("n").node("Softmax", {"a"}, {"b"});
  g.node("MatMul", {"b", "w"}, {"y"}).output("y");
  convert(model(g.take()));
  EXPECT_EQ(type_of("x__f16"), "int64");
  EXPECT_EQ(type_of("x__f16_1"), "float16");
}

TEST_F(Constructs, WeightsOfOldModelsAreInputsToo) {
  GraphBuilder g;
  g.input("x").input("w").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
  EXPECT_EQ(convert(model(g.take(), 7, 3)).report.low_weights, 1);
  EXPECT_EQ(type_of("w"), "float16");
}

TEST_F(Constructs, ReplaceableDefaultsKeepTheirType) {
  GraphBuilder g;
  g.input("x").input("w").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
  convert(model(g.take(), 17, 8));
  EXPECT_EQ(type_of("w"), "float32");
  EXPECT_EQ(count("Cast"), 3);
}

TEST_F(Constructs, ConstantsInEveryForm) {
  Message list;
  list.add(field::attribute::kName, std::string_view("value_floats"));
  const std::vector<float> values{1, 2};
  list.add(field::attribute::kFloats,
           kept(std::string(reinterpret_cast<const char*>(values.data()), 8)));
  list.add(field::attribute::kType, std::uint64_t{6});
  Message unpacked;
  for (int i = 0; i < 4; ++i) {
    Field& field = unpacked.add(field::tensor::kFloatData, std::uint64_t{0x3F800000});
    field.wire = Wire::kFixed32;
  }
  unpacked.add(field::tensor::kDims, std::uint64_t{2});
  unpacked.add(field::tensor::kDims, std::uint64_t{2});
  unpacked.add(field::tensor::kType, std::uint64_t{1});
  unpacked.add(field::tensor::kName, std::string_view("u"));
  GraphBuilder g;
  g.input("x")
      .initializer(std::move(unpacked))
      .node("Constant", {}, {"k"}, tensor_attribute("value", floats("", {2, 2}, {1, 2, 3, 4})));
  g.node("Constant", {}, {"f"}, std::move(list))
      .node("MatMul", {"x", "k"}, {"a"})
      .node("MatMul", {"a", "u"}, {"b"});
  g.node("MatMul", {"b", "f"}, {"y"}).output("y", Element::kFloat, {2});
  convert(model(g.take()));
  for (const char* name : {"k", "u", "f"}) EXPECT_EQ(type_of(name), "float16") << name;
}

TEST_F(Constructs, ASharedWeightIsStoredInBothTypes) {
  GraphBuilder g;
  g.input("x")
      .weight("w")
      .node("MatMul", {"x", "w"}, {"a"})
      .node("Softmax", {"w"}, {"s"})
      .node("MatMul", {"a", "s"}, {"y"})
      .output("y");
  EXPECT_EQ(convert(model(g.take())).report.duplicated_weights, 1);
}

TEST_F(Constructs, AStatisticBeyondTheRangeKeepsItsReaderFloat) {
  GraphBuilder g;
  const std::vector<std::int64_t> image{1, 1, 2, 2};
  g.input("x", Element::kFloat, image)
      .weight("k", {2}, {1, 1, 1, 1})
      .weight("scale", {1}, {1})
      .weight("shift", {0}, {1});
  g.weight("mean", {0}, {1}).weight("variance", {9.79e7F}, {1}).node("Conv", {"x", "k"}, {"c"});
  g.node("BatchNormalization", {"c", "scale", "shift", "mean", "variance"}, {"b"})
      .node("Conv", {"b", "k"}, {"y"})
      .output("y", Element::kFloat, image);
  const Result result = convert(model(g.take(), 9, 4));
  EXPECT_EQ(type_of("variance"), "float32");
  EXPECT_EQ(type_of("b"), "float32");
  bool said = false;
  for (const Decision& decision : result.report.decisions)
    said = said || decision.why.find("9.79e+07") != std::string::npos;
  EXPECT_TRUE(said);
}

TEST_F(Constructs, MaskSentinelsAndEpsilonsStayFloat) {
  GraphBuilder g;
  g.input("x")
      .input("keep", Element::kBool)
      .weight("w")
      .weight("never", {-1e9F}, {})
      .weight("eps", {1e-7F}, {});
  g.node("MatMul", {"x", "w"}, {"s"})
      .node("Where", {"keep", "s", "never"}, {"masked"})
      .node("Softmax", {"masked"}, {"p"});
  g.node("MatMul", {"p", "w"}, {"v"})
      .node("Add", {"v", "eps"}, {"e"})
      .node("Div", {"v", "e"}, {"d"})
      .node("MatMul", {"d", "w"}, {"y"})
      .output("y");
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 3);
  EXPECT_EQ(type_of("never"), "float32");
  EXPECT_EQ(type_of("eps"), "float32");
  EXPECT_EQ(type_of("masked"), "float32");
}

TEST_F(Constructs, QuantisedPartsStayAsTheyAre) {
  GraphBuilder g;
  g.input("x")
      .weight("w")
      .weight("scale", {0.1F}, {})
      .initializer(tensor<std::uint8_t>("zero", Element::kUint8, {}, {0}));
  g.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"})
      .node("DequantizeLinear", {"q", "scale", "zero"}, {"d"})
      .node("MatMul", {"d", "w"}, {"m"});
  g.node("QuantizeLinear", {"m", "scale", "zero"}, {"y"}).output("y", Element::kUint8);
  EXPECT_TRUE(convert(model(g.take())).report.unchanged);
}

TEST_F(Constructs, DoublesAndUserCastsAreKept) {
  GraphBuilder g;
  g.input("x", Element::kDouble)
      .weight("w")
      .node("Cast", {"x"}, {"f"}, attribute("to", std::int64_t{1}));
  g.node("MatMul", {"f", "w"}, {"m"})
      .node("Cast", {"m"}, {"y"}, attribute("to", std::int64_t{11}))
      .output("y", Element::kDouble);
  convert(model(g.take()));
  EXPECT_EQ(type_of("f"), "float32");
  EXPECT_EQ(count("Cast"), 3) << "the model's two, and ours behind the first";
}

TEST_F(Constructs, FloatsThatBecomeSizesStayFloat) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {2})
      .weight("two", {2, 2}, {2})
      .weight("w")
      .node("Mul", {"x", "two"}, {"m"})
      .node("Floor", {"m"}, {"f"});
  g.node("Cast", {"f"}, {"shape"}, attribute("to", std::int64_t{7}))
      .node("Expand", {"w", "shape"}, {"y"})
      .output("y");
  options_.io_of = {};
  convert(model(g.take()));
  EXPECT_EQ(type_of("f"), "float32");
}

TEST_F(Constructs, ScalarsAndEmptyTensors) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {0, 2})
      .weight("w")
      .weight("none", {}, {0, 2})
      .weight("one", {1.5F}, {});
  g.node("Concat", {"x", "none"}, {"c"}, attribute("axis", std::int64_t{0}))
      .node("MatMul", {"c", "w"}, {"m"})
      .node("Mul", {"m", "one"}, {"y"})
      .output("y", Element::kFloat, {0, 2});
  EXPECT_EQ(convert(model(g.take())).report.heavy_low_nodes, 1);
}

TEST_F(Constructs, TheOrderOfNodesInTheFileDoesNotMatter) {
  const auto build = [](bool turned) {
    GraphBuilder g;
    g.input("x").weight("w").output("y");
    std::vector<std::function<void()>> nodes{[&] {
                                               g.node("MatMul", {"x", "w"}, {"a"});
                                             },
                                             [&] { g.node("Exp", {"x"}, {"b"}); },
                                             [&] {
                                               g.node("MatMul", {"x", "w"}, {"c"});
                                             }};
    if (turned) std::ranges::reverse(nodes);
    for (const auto& node : nodes) node();
    g.node("Add", {"a", "b"}, {"s"}).node("MatMul", {"s", "c"}, {"y"});
    return model(g.take());
  };
  save(folder_ / "a.onnx", build(false));
  save(folder_ / "b.onnx", build(true));
  const auto labels = [&](const char* name) {
    std::map<std::string, bool> all;
    for (const Decision& decision : plan_model(folder_ / name, options_).decisions)
      all[decision.key + decision.variable] = decision.low;
    return all;
  };
  EXPECT_EQ(labels("a.onnx"), labels("b.onnx"));
  EXPECT_EQ(plan_model(folder_ / "a.onnx", options_).structure,
            plan_model(folder_ / "b.onnx", options_).structure);
}

TEST_F(Constructs, ModelsThatImportOtherDomainsAloneGetACastsOwn) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 4});
  g.in_domain("ai.onnx.ml").node("Normalizer", {"x"}, {"y"}, attribute("norm", "L2"));
  Message made;
  made.add(field::model::kIrVersion, std::uint64_t{3});
  made.add(field::model::kGraph,
           std::make_unique<Message>(g.output("y", Element::kFloat, {1, 4}).take()));
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "ai.onnx.ml")));
  for (const char* dtype : {"float16", "bfloat16"}) {
    options_.target_dtype = dtype;
    options_.io = "keep";
    save(in_(), made);
    EXPECT_TRUE(convert_model(in_(), out_(), options_).report.unchanged);
    EXPECT_EQ(contents(in_()), contents(out_()));
    options_.io = "low";
    convert_model(in_(), out_(), options_);
    Document document(out_());
    const Graph graph(document);
    for (const Finding& finding : check_graph(graph)) ADD_FAILURE() << finding.what;
    EXPECT_EQ(type_of("x"), dtype);
    EXPECT_EQ(type_of("y"), dtype);
    EXPECT_EQ(count("Cast"), 2);
  }
}

}  // namespace
}  // namespace mezzo::convert
