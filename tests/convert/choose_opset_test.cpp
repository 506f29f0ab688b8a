// Which opset a result has: old models are raised where they are converted, and what is asked for
// is done or refused.
#include "convert/choose_opset.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class OpsetTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("choose_opset");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  Report convert(const Message& made) {
    save(in(), made);
    return convert_model(in(), out(), options_).report;
  }
  // Are there Casts whose type is a text, as opsets 1 to 5 have it?
  bool has_casts_of_text() const {
    const std::string bytes = contents(out());
    Message made = Message::parse(bytes);
    for (Field& field : made.find(field::model::kGraph)->open().fields()) {
      if (field.number != field::graph::kNode || field.open().text(field::node::kOpType) != "Cast")
        continue;
      Message& to = field.open().find(field::node::kAttribute)->open();
      if (to.find(field::attribute::kString) != nullptr) return true;
    }
    return false;
  }

  fs::path in() const { return folder_ / "in.onnx"; }
  fs::path out() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  Options options_;
};

// A convolution as opset 1 has it; weights had to be listed as inputs.
Message old_model(const std::string& last = "Softplus") {
  const std::vector<std::int64_t> image{1, 2, 4, 4};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).input("w", Element::kFloat, {2, 2, 1, 1});
  g.weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("Conv", {"x", "w"}, {"c"}).node(last, {"c"}, {"y"});
  return model(g.output("y", Element::kFloat, image).take(), 1, 3);
}

TEST_F(OpsetTest, ModelsOfOldOpsetsAreRaisedWhereTheyAreConverted) {
  for (const char* profile : {"spec", "ort", "ort-cuda", "trt", "openvino"}) {
    for (const char* io : {"keep", "low"}) {
      options_.profile = profile;
      options_.io = io;
      const Report report = convert(old_model());
      EXPECT_EQ(report.opset_before, 1);
      EXPECT_EQ(report.opset_after, 7) << profile << ' ' << io;
      EXPECT_EQ(report.heavy_low_nodes, 1) << profile << ' ' << io;
      EXPECT_GT(report.casts.size(), 0U) << profile << ' ' << io;
      EXPECT_FALSE(has_casts_of_text()) << profile << ' ' << io;
      EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
      EXPECT_THAT(report.warnings, IsEmpty());
    }
  }
}

// Up to opset 8 a Constant gave floating point numbers alone.
TEST_F(OpsetTest, ShapesThatWereAttributesBecomeInputsThatTheOpsetAllows) {
  for (const char* opset : {"keep", "5", "7", "9"}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
    g.node("Conv", {"x", "w"}, {"c"});
    g.node("Reshape", {"c"}, {"y"}, integers_attribute("shape", {1, 32}));
    options_.opset = opset;
    const Report report = convert(model(g.output("y", Element::kFloat, {1, 32}).take(), 1, 4));
    EXPECT_EQ(report.heavy_low_nodes, 1);
    EXPECT_THAT(inspect_model(out()).findings, IsEmpty()) << opset;
    EXPECT_THAT(report.warnings, IsEmpty()) << opset;
  }
}

TEST_F(OpsetTest, AnOldModelThatNothingLowersStaysAsItIs) {
  options_.target_dtype_ops = std::vector<std::string>{};
  for (const bool weights_only : {false, true}) {
    options_.weights_only = weights_only;  // too few weights to be worth a Cast
    const Report report = convert(old_model());
    EXPECT_TRUE(report.unchanged);
    EXPECT_EQ(report.opset_after, 1);
    EXPECT_EQ(contents(out()), contents(in()));
  }
}

TEST_F(OpsetTest, WeightsOfAnOldModelAreReadThroughCastsOfToday) {
  const std::vector<std::int64_t> shape{8, 8, 1, 1};
  const std::vector<float> values(64, 0.5F);
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 8, 4, 4}).weight("w", values, shape);
  g.node("Conv", {"x", "w"}, {"y"}).output("y", Element::kFloat, {1, 8, 4, 4});
  options_.weights_only = true;
  const Report report = convert(model(g.take(), 5, 4));
  EXPECT_EQ(report.low_weights, 1);
  EXPECT_EQ(report.opset_after, 7);
  EXPECT_FALSE(has_casts_of_text());
}

TEST_F(OpsetTest, WhereAnOldModelCannotBeRaisedItsOpsetStaysWithAWarning) {
  const std::vector<std::int64_t> image{1, 2, 4, 4};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("Conv", {"x", "w"}, {"c"});
  g.node("BatchNormalization", {"c", "b", "b", "b", "b"}, {"y"},
         integers_attribute("consumed_inputs", {0, 0, 0, 1, 1}));
  g.weight("b", {1, 2}, {2});
  g.output("y", Element::kFloat, image);
  const Report report = convert(model(g.take(), 1, 4));
  EXPECT_EQ(report.opset_after, 1);
  EXPECT_EQ(report.heavy_low_nodes, 1);
  EXPECT_TRUE(has_casts_of_text());
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
  EXPECT_THAT(report.warnings, Contains(HasSubstr("opset 1 stays, since it cannot be raised to 7: "
                                                  "BatchNormalization trains (opset 7)")));
}

TEST_F(OpsetTest, TheModelsOwnOldOpsetMayBeAskedFor) {
  options_.opset = "1";
  const Report report = convert(old_model());
  EXPECT_EQ(report.opset_after, 1);
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
}

TEST_F(OpsetTest, LoweringAnOpsetAndUnknownOnesAreWrongUsage) {
  const auto refusal = [&](const char* opset) -> std::string {
    options_.opset = opset;
    try {
      convert(model(GraphBuilder().input("x").node("Relu", {"x"}, {"y"}).output("y").take(), 17));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refusal("9"), HasSubstr("has opset 17, and opsets are not lowered; expected keep, "
                                      "auto or 17 to "));
  for (const char* unknown : {"0", "000", "99", "-1", "1.5", "", "newest"}) {
    EXPECT_THAT(refusal(unknown), HasSubstr("expected keep, auto or 1 to ")) << unknown;
  }
}

// Training operators alone: no opset of ONNX's own operators, so one is imported for the Casts.
TEST_F(OpsetTest, LowInputsWhereNoCastMayStandGetAnOpsetOrAreRefusedWithWhatWouldWork) {
  const auto refusal = [&](const Message& made) -> std::string {
    options_.io = "low";
    try {
      convert(made);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return "not refused";
  };
  GraphBuilder g;
  g.input("r", Element::kFloat, {})
      .input("t", Element::kInt64, {})
      .input("x", Element::kFloat, {1});
  g.input("g", Element::kFloat, {1}).input("v", Element::kFloat, {1});
  g.in_domain("ai.onnx.preview.training").node("Momentum", {"r", "t", "x", "g", "v"}, {"y", "w"});
  Message training;
  training.add(field::model::kIrVersion, std::uint64_t{8});
  training.add(field::model::kGraph,
               std::make_unique<Message>(g.output("y", Element::kFloat, {1}).take()));
  training.add(field::model::kOpsetImport,
               std::make_unique<Message>(opset_import(1, "ai.onnx.preview.training")));
  EXPECT_EQ(refusal(training), "not refused");
  options_.target_dtype = "bfloat16";
  EXPECT_THAT(
      refusal(model(GraphBuilder().input("x").node("Relu", {"x"}, {"y"}).output("y").take(), 9)),
      HasSubstr(
          "the model's opset 9 has no Cast to bfloat16, the first that has is 13; raise the model "
          "(opset '13' or 'auto')"));
  options_.opset = "auto";
  EXPECT_EQ(
      convert(model(GraphBuilder().input("x").node("Relu", {"x"}, {"y"}).output("y").take(), 9))
          .opset_after,
      13);
}

// Runtimes refuse functions whose operators mean something else than the model's.
TEST_F(OpsetTest, FunctionsAreRaisedWithTheModel) {
  const auto with_function = [](Message reduce) {
    Message function;
    function.add(field::function::kName, std::string_view("Centre"));
    function.add(field::function::kInput, std::string_view("a"));
    function.add(field::function::kOutput, std::string_view("d"));
    function.add(field::function::kAttribute, std::string_view("axes"));
    GraphBuilder nodes;
    nodes.node("ReduceMean", {"a"}, {"m"}, std::move(reduce)).node("Sub", {"a", "m"}, {"d"});
    Message graph = nodes.take();
    for (Field& field : graph.fields()) {
      if (field.number == field::graph::kNode)
        function.add(field::function::kNode, std::move(field.message));
    }
    function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
    function.add(field::function::kDomain, std::string_view("my"));
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"p"});
    g.in_domain("my").node("Centre", {"p"}, {"y"}, integers_attribute("axes", {1}));
    Message m = model(g.output("y").take(), 17);
    m.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
    m.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
    return m;
  };
  options_.opset = "18";
  const Report report = convert(with_function(integers_attribute("axes", {1})));
  EXPECT_EQ(report.heavy_low_nodes, 1);
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
  const std::string bytes = contents(out());
  Message raised = Message::parse(bytes);
  int functions = 0;
  for (Field& field : raised.fields()) {
    if (field.number != field::model::kFunctions) continue;
    ++functions;
    Message& import = field.open().find(field::function::kOpsetImport)->open();
    EXPECT_EQ(import.number(field::opset::kVersion), 18U);
  }
  EXPECT_GE(functions, 1);
  // Axes that every call names for itself cannot become a constant.
  Message reference;
  reference.add(field::attribute::kName, std::string_view("axes"));
  reference.add(field::attribute::kReference, std::string_view("axes"));
  reference.add(field::attribute::kType, std::uint64_t{7});
  try {
    convert(with_function(std::move(reference)));
    ADD_FAILURE() << "not refused";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("in function 'Centre': ReduceMean takes an attribute from its function"));
  }
}

TEST_F(OpsetTest, GroupNormalizationGetsAValuePerChannel) {
  const std::vector<std::int64_t> image{1, 4, 2, 2};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).weight("w", std::vector<float>(16, 0.5F), {4, 4, 1, 1});
  g.weight("scale", {1, 2}, {2}).weight("bias", {0, 1}, {2});
  g.node("Conv", {"x", "w"}, {"c"});
  g.node("GroupNormalization", {"c", "scale", "bias"}, {"y"}, attribute("num_groups", 2));
  options_.opset = "21";
  const Report report = convert(model(g.output("y", Element::kFloat, image).take(), 18));
  EXPECT_EQ(report.opset_after, 21);
  EXPECT_EQ(report.heavy_low_nodes, 1);
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
}

TEST_F(OpsetTest, FormsOfTheFirstOpsetsAreRaisedToo) {
  const std::vector<std::int64_t> image{1, 2, 4, 4};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("Conv", {"x", "w"}, {"c"});
  g.node("Pad", {"c"}, {"p"}, integers_attribute("paddings", {0, 0, 0, 0, 0, 0, 0, 0}));
  g.node("Split", {"p"}, {"s", "t"}, attribute("axis", 1));
  Message power;
  power.add(field::attribute::kName, std::string_view("p"));
  Field& value = power.add(field::attribute::kFloat, std::uint64_t{0x40400000});  // 3
  value.wire = Wire::kFixed32;
  power.add(field::attribute::kType, std::uint64_t{1});
  g.node("LpPool", {"s"}, {"l"}, std::move(power), integers_attribute("kernel_shape", {2, 2}));
  const Message made = model(g.output("l", Element::kFloat, {1, 1, 3, 3}).output("t").take(), 1, 3);
  const Report report = convert(made);
  EXPECT_EQ(report.opset_after, 7);
  EXPECT_THAT(inspect_model(out()).findings, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
}

// x -> Conv -> one node -> y, as that opset has them.
Message with_node(int opset, const std::string& op, Message attribute) {
  const std::vector<std::int64_t> image{1, 2, 4, 4};
  GraphBuilder g;
  g.input("x", Element::kFloat, image).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  g.node("Conv", {"x", "w"}, {"c"}).node(op, {"c"}, {"y"}, std::move(attribute));
  return model(g.output("y", Element::kFloat, {1, 2, -1, -1}).take(), opset);
}

TEST_F(OpsetTest, DefaultsThatChangedAreWrittenOut) {
  options_.opset = "7";
  convert(with_node(1, "Selu", float_attribute("alpha", 2)));
  Document document(out());
  const Graph graph(document);
  const auto selu = std::ranges::find(graph.nodes, "Selu", &Node::op);
  ASSERT_NE(selu, graph.nodes.end());
  EXPECT_EQ(graph.attribute_text(*selu, "alpha"), "2");
  EXPECT_EQ(graph.attribute_text(*selu, "gamma"), "1.05069995");
}

TEST_F(OpsetTest, ScalesOfUpsampleBecomeAnInput) {
  Message scales;
  scales.add(field::attribute::kName, std::string_view("scales"));
  const std::vector<float> values{1, 1, 2, 2};
  scales.add(field::attribute::kFloats,
             kept(std::string(reinterpret_cast<const char*>(values.data()), 16)));
  scales.add(field::attribute::kType, std::uint64_t{6});
  for (const char* opset : {"9", "10", "13"}) {
    options_.opset = opset;
    const Report report = convert(with_node(7, "Upsample", scales.clone()));
    EXPECT_EQ(std::to_string(report.opset_after), opset);
    EXPECT_THAT(inspect_model(out()).findings, IsEmpty()) << opset;
  }
}

TEST_F(OpsetTest, ModesThatAreNoMoreAreRefused) {
  options_.opset = "13";
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("none", {}, {0});
  g.weight("scales", {1, 1, 2, 2}, {4});
  g.node("Resize", {"x", "none", "scales"}, {"y"}, attribute("nearest_mode", "ceil"),
         attribute("coordinate_transformation_mode", "tf_half_pixel_for_nn"));
  try {
    convert(model(g.output("y", Element::kFloat, {1, 2, 8, 8}).take(), 11));
    ADD_FAILURE() << "not refused";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Resize uses tf_half_pixel_for_nn"));
  }
}

// One fault goes (an attribute that opset 13 knows), another one comes.
TEST_F(OpsetTest, AFaultThatGoesHidesNoneThatComes) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 4}).weight("w", std::vector<float>(16, 1), {4, 4});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Celu", {"m"}, {"c"});
  g.node("Upsample", {"c"}, {"y"}, float_attribute("height_scale", 1));
  options_.opset = "12";
  EXPECT_THROW(convert(model(g.output("y", Element::kFloat, {1, 4}).take(), 11)), UnsupportedError);
}

// A plan says which opset was taken, so that it does not depend on the policy it is applied with.
TEST_F(OpsetTest, APlanIsAppliedInTheOpsetItWasMadeIn) {
  const auto applied_like_converted = [&](const Message& made) {
    save(in(), made);
    Result result = convert_model(in(), out(), options_);
    apply_plan(in(), folder_ / "applied.onnx", Plan::from_json(result.plan.to_json()));
    EXPECT_EQ(contents(folder_ / "applied.onnx"), contents(out()));
    return result;
  };
  options_.profile = "ort";
  EXPECT_EQ(applied_like_converted(old_model()).report.opset_after, 7);
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"m"}).node("Softplus", {"m"}, {"y"});
  options_ = {};
  options_.target_dtype = "bfloat16";
  options_.opset = "auto";
  options_.target_dtype_ops = std::vector<std::string>{"MatMul", "Softplus"};
  const Result result = applied_like_converted(model(g.output("y").take(), 17));
  EXPECT_EQ(result.report.opset_after, 22);
  EXPECT_EQ(result.plan.opset, "22");
}

}  // namespace
}  // namespace mezzo::convert
