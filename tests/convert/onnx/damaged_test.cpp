// Models that no exporter writes: they are refused or come through, and nothing is written that
// was not there.
#include <gmock/gmock.h>

#include "builder.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DamagedModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("damaged");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  Report convert(const Message& made) {
    save(in(), made);
    return convert_model(in(), out(), options_).report;
  }

  fs::path in() const { return folder_ / "in.onnx"; }
  fs::path out() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  Options options_;
};

// CumSum takes float16 from opset 14 on, so that newer opsets are tried; Softmax changed at 13.
TEST_F(DamagedModel, WithASoftmaxThatMakesNothingIsNotRaised) {
  for (const bool is_left_out : {false, true}) {
    GraphBuilder g;
    g.input("x").initializer(tensor<std::int64_t>("axis", Element::kInt64, {}, {0})).weight("w");
    g.node("MatMul", {"x", "w"}, {"m"}).node("CumSum", {"m", "axis"}, {"y"});
    g.node("Softmax", {"y"},
           is_left_out ? std::vector<std::string>{""} : std::vector<std::string>{},
           attribute("axis", 1));
    const Message made = model(g.output("y").take(), 11);
    options_.opset = "keep";
    EXPECT_EQ(convert(made).better_opset, 0);
    options_.opset = "13";
    try {
      convert(made);
      ADD_FAILURE() << "not refused";
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Softmax has no output (opset 13)"));
    }
  }
}

// A weight of IR 3, declared as float, whose values are doubles.
Message mismatched(Message weight, std::vector<std::int64_t> dims) {
  GraphBuilder g;
  g.input("x").input("w", Element::kFloat, dims).initializer(std::move(weight));
  g.weight("v").input("v").node("MatMul", {"x", "v"}, {"m"}).node("Mul", {"m", "w"}, {"y"});
  return model(g.output("y").take(), 9, 3);
}

Message typed(std::int64_t count) {
  Message weight;
  weight.add(field::tensor::kDims, static_cast<std::uint64_t>(count));
  weight.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kDouble));
  weight.add(field::tensor::kName, std::string_view("w"));
  return weight;
}

TEST_F(DamagedModel, WithWeightsOfAnotherTypeThanTheirInputsKeepsThem) {
  Message packed = typed(0);
  packed.add(field::tensor::kFloatData, kept(std::string(8, '\1')));
  Message listed = typed(0);
  listed.add(field::tensor::kFloatData, std::uint64_t{0x3F800000}).wire = Wire::kFixed32;
  const std::vector<std::pair<Message*, std::int64_t>> empty{{&packed, 0}, {&listed, 0}};
  for (const char* io : {"keep", "low"}) {
    options_.io = io;
    for (const auto& [weight, count] : empty) {
      convert(mismatched(weight->clone(), {count}));
      EXPECT_EQ(weight_types(out()).at("w"), "float64") << io;
    }
    convert(mismatched(tensor<double>("w", Element::kDouble, {2}, {1, 2}), {2}));
    EXPECT_EQ(weight_types(out()).at("w"), "float64") << io;
  }
}

TEST_F(DamagedModel, WithADefaultOfAnotherTypeThanItsInputKeepsIt) {
  GraphBuilder g;
  g.input("x").input("w").initializer(tensor<double>("w", Element::kDouble, {2, 2}, {1, 2, 3, 4}));
  options_.io = "low";
  convert(model(g.node("MatMul", {"x", "w"}, {"y"}).output("y").take()));
  EXPECT_EQ(weight_types(out()).at("w"), "float64");
}

TEST_F(DamagedModel, WithAComparisonWithoutAResultHasNothingToCompare) {
  for (const std::vector<std::string>& none : {std::vector<std::string>{}, {""}}) {
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).node("Greater", {"y", "y"}, none);
    EXPECT_EQ(convert(model(g.output("y").take())).heavy_low_nodes, 1);
  }
}

TEST_F(DamagedModel, WithAConstantBehindNothingIsNotRounded) {
  for (const bool weights_only : {false, true}) {
    options_.weights_only = weights_only;
    const std::vector<float> values(64, 1);
    GraphBuilder g;
    g.input("x", Element::kFloat, {8, 8});
    g.node("Constant", {}, {"", "c"}, tensor_attribute("value", floats("", {8, 8}, values)));
    g.node("MatMul", {"x", "c"}, {"y"});
    g.add(field::graph::kValueInfo, value_info("c", Element::kFloat, {8, 8}));
    EXPECT_EQ(convert(model(g.output("y", Element::kFloat, {8, 8}).take())).low_weights, 0);
  }
}

// A graph with a node with a body with a node ..., as bytes: no Message is that deep.
std::string nested(int depth) {
  std::vector<std::string> heads;
  std::uint64_t size = 0;
  const auto wrap = [&](std::uint32_t number) {
    std::string head(1, static_cast<char>(number << 3 | 2));
    std::uint64_t rest = size;
    for (; rest >= 128; rest >>= 7) head.push_back(static_cast<char>((rest & 127) | 128));
    head.push_back(static_cast<char>(rest));
    size += head.size();
    heads.push_back(std::move(head));
  };
  for (int i = 0; i < depth; ++i) {
    wrap(field::attribute::kGraph);
    wrap(field::node::kAttribute);
    wrap(i + 1 < depth ? std::uint32_t{field::graph::kNode} : std::uint32_t{0});
  }
  heads.pop_back();
  std::string bytes;
  for (std::size_t i = heads.size(); i-- > 0;) bytes += heads[i];
  return bytes;
}

TEST_F(DamagedModel, WithBodiesInBodiesThatNothingRunsIsRefused) {
  constexpr int kDepth = 50'000;
  const std::string node = nested(kDepth);
  const auto refusal = [&](Message holder, std::uint32_t number) -> std::string {
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
    Message made = model(g.take());
    made.add(number, std::make_unique<Message>(std::move(holder)));
    try {
      convert(made);
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  Message step;
  step.add(field::graph::kNode, std::string_view(node));
  Message training;
  training.add(field::training::kAlgorithm, std::make_unique<Message>(std::move(step)));
  EXPECT_THAT(refusal(std::move(training), field::model::kTrainingInfo),
              HasSubstr("nested deeper than 64"));
  for (const char* opset : {"keep", "18"}) {
    options_.opset = opset;
    Message function;
    function.add(field::function::kName, std::string_view("unused"));
    function.add(field::function::kNode, std::string_view(node));
    function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
    EXPECT_THAT(refusal(std::move(function), field::model::kFunctions),
                HasSubstr("nested deeper than 64"));
  }
}

}  // namespace
}  // namespace mezzo::convert
