// Batch normalizations become part of the products before them: the same numbers, fewer nodes, and
// nothing that others read is touched.
#include "convert/prepare/fold_batch_norm.h"

#include <gmock/gmock.h>

#include <cmath>

#include "builder.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Values = std::vector<float>;

const Values kScale{2, -0.5F}, kBias{0.25F, 1}, kMean{3, -1}, kVariance{4, 0.25F};
constexpr double kEpsilon = 1e-3F;

double factor(std::size_t c) {
  return kScale[c] / std::sqrt(kVariance[c] + kEpsilon);
}
double shift(std::size_t c, double bias = 0) {
  return (bias - kMean[c]) * factor(c) + kBias[c];
}

GraphBuilder& with_parameters(GraphBuilder& g, const std::string& prefix = "") {
  return g.weight(prefix + "scale", kScale, {2})
      .weight(prefix + "bias", kBias, {2})
      .weight(prefix + "mean", kMean, {2})
      .weight(prefix + "variance", kVariance, {2});
}

GraphBuilder& norm(GraphBuilder& g, const std::string& in, const std::string& out,
                   const std::string& prefix = "") {
  return g.node("BatchNormalization",
                {in, prefix + "scale", prefix + "bias", prefix + "mean", prefix + "variance"},
                {out}, float_attribute("epsilon", kEpsilon));
}

const std::vector<std::int64_t> kImage{1, 2, 1, 1};

// x -> Conv with w (2 x 2 x 1 x 1) -> BatchNormalization -> y.
GraphBuilder convolution(const std::vector<std::string>& inputs = {"x", "w"}) {
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  with_parameters(g).node("Conv", inputs, {"c"});
  norm(g, "c", "y").output("y", Element::kFloat, kImage);
  return g;
}

// A model, folded.
struct Folded {
  explicit Folded(const Message& made)
      : document(bytes_of(made)), list(fold_batch_norms(document)), graph(document) {}

  const Node& node(const std::string& op) const {
    return *std::ranges::find(graph.nodes, op, &Node::op);
  }
  std::size_t count(const std::string& op) const {
    return static_cast<std::size_t>(std::ranges::count(graph.nodes, op, &Node::op));
  }
  std::vector<double> constant(const std::string& op, std::size_t input) {
    return array_of(document, *graph.constant(node(op).inputs.at(input))).values();
  }
  std::string_view name(const std::string& op, std::size_t input) const {
    return graph.value(node(op).inputs.at(input)).name;
  }
  bool has(std::string_view value) const { return graph.scope(0).names.contains(value); }

  Document document;
  std::vector<BatchNormFold> list;
  Graph graph;
};

std::vector<testing::Matcher<double>> near(const std::vector<double>& values) {
  std::vector<testing::Matcher<double>> all;
  for (const double value : values)
    all.push_back(testing::DoubleNear(value, 1e-6 * (1 + std::abs(value))));
  return all;
}

std::string why_not(const Message& made) {
  Folded folded(made);
  const bool is_folded = folded.list.empty() || !folded.list.back().into.empty();
  EXPECT_EQ(folded.document.model().is_clean(), !is_folded);
  return folded.list.empty() ? "nothing there" : folded.list.back().why;
}

TEST(FoldBatchNorm, GivesAConvolutionItsWeightsAndABias) {
  Folded folded(model(convolution().take()));
  EXPECT_EQ(folded.count("BatchNormalization"), 0U);
  EXPECT_THAT(
      folded.constant("Conv", 1),
      testing::ElementsAreArray(near({factor(0), 2 * factor(0), 3 * factor(1), 4 * factor(1)})));
  EXPECT_THAT(folded.constant("Conv", 2), testing::ElementsAreArray(near({shift(0), shift(1)})));
  EXPECT_EQ(folded.name("Conv", 1), "w");
  EXPECT_EQ(folded.name("Conv", 2), "c__bias");
  EXPECT_EQ(folded.graph.value(folded.node("Conv").outputs[0]).name, "y");
  for (const char* dead : {"scale", "bias", "mean", "variance", "c"})
    EXPECT_FALSE(folded.has(dead)) << dead;
  ASSERT_THAT(folded.list, SizeIs(1));
  EXPECT_THAT(folded.list[0].node, HasSubstr("'y' (BatchNormalization)"));
  EXPECT_THAT(folded.list[0].into, HasSubstr("'c' (Conv)"));
  EXPECT_THAT(folded.list[0].why, IsEmpty());
}

TEST(FoldBatchNorm, AddsToTheBiasThatIsThere) {
  GraphBuilder g = convolution({"x", "w", "b"});
  Folded folded(model(g.weight("b", {5, -7}, {2}).take()));
  EXPECT_THAT(folded.constant("Conv", 2),
              testing::ElementsAreArray(near({shift(0, 5), shift(1, -7)})));
  EXPECT_EQ(folded.name("Conv", 2), "b");
}

TEST(FoldBatchNorm, KnowsTheChannelsOfGroupsOfATransposedConvolution) {
  // 4 input channels in 2 groups, each with one output channel.
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 4, 1, 1}).weight("w", {1, 2, 3, 4}, {4, 1, 1, 1});
  with_parameters(g).node("ConvTranspose", {"x", "w"}, {"c"}, attribute("group", 2));
  norm(g, "c", "y").output("y", Element::kFloat, kImage);
  Folded folded(model(g.take()));
  EXPECT_THAT(
      folded.constant("ConvTranspose", 1),
      testing::ElementsAreArray(near({factor(0), 2 * factor(0), 3 * factor(1), 4 * factor(1)})));
  // Without groups the second dimension is the channel.
  GraphBuilder h;
  h.input("x", Element::kFloat, kImage).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  with_parameters(h).node("ConvTranspose", {"x", "w"}, {"c"});
  norm(h, "c", "y").output("y", Element::kFloat, kImage);
  Folded other(model(h.take()));
  EXPECT_THAT(
      other.constant("ConvTranspose", 1),
      testing::ElementsAreArray(near({factor(0), 2 * factor(1), 3 * factor(0), 4 * factor(1)})));
}

TEST(FoldBatchNorm, KnowsTheFactorsAndTheLayoutOfGemm) {
  for (const bool is_transposed : {false, true}) {
    for (const std::vector<std::int64_t>& dims :
         {std::vector<std::int64_t>{2}, std::vector<std::int64_t>{1, 2}}) {
      GraphBuilder g;
      g.input("x").weight("w", {1, 2, 3, 4}).weight("b", {5, -7}, dims);
      with_parameters(g).node("Gemm", {"x", "w", "b"}, {"c"},
                              attribute("transB", is_transposed ? 1 : 0),
                              float_attribute("alpha", 0.5F), float_attribute("beta", 3));
      norm(g, "c", "y").output("y");
      Folded folded(model(g.take()));
      const double second = factor(is_transposed ? 0 : 1);
      const double third = factor(is_transposed ? 1 : 0);
      EXPECT_THAT(
          folded.constant("Gemm", 1),
          testing::ElementsAreArray(near({factor(0), 2 * second, 3 * third, 4 * factor(1)})));
      EXPECT_THAT(folded.constant("Gemm", 2),
                  testing::ElementsAreArray(near({shift(0, 15), shift(1, -21)})));
      EXPECT_EQ(folded.graph.attribute_text(folded.node("Gemm"), "alpha"), "0.5");
      EXPECT_EQ(folded.graph.attribute(folded.node("Gemm"), "beta"), nullptr);
    }
  }
}

// x -> MatMul with w -> BatchNormalization -> y; nothing is told about what is between.
Message matrix_product(const std::vector<std::int64_t>& input, const std::string& before = "") {
  GraphBuilder g;
  g.input("x", Element::kFloat, input).weight("w", {1, 2, 3, 4}, {2, 2});
  if (!before.empty()) g.node(before, {"x"}, {"f"});
  with_parameters(g).node("MatMul", {before.empty() ? "x" : "f", "w"}, {"c"});
  return model(norm(g, "c", "y").output("y", Element::kFloat, {-1, -1}).take());
}

TEST(FoldBatchNorm, MakesAMatMulOfTwoDimensionsAGemm) {
  for (const Message& made :
       {matrix_product({3, 2}), matrix_product({-1, 2}), matrix_product({-1, 2, 1}, "Flatten")}) {
    Folded folded(made);
    EXPECT_EQ(folded.graph.nodes.back().op, "Gemm");
    EXPECT_THAT(
        folded.constant("Gemm", 1),
        testing::ElementsAreArray(near({factor(0), 2 * factor(1), 3 * factor(0), 4 * factor(1)})));
    EXPECT_THAT(folded.constant("Gemm", 2), testing::ElementsAreArray(near({shift(0), shift(1)})));
    EXPECT_EQ(folded.count("BatchNormalization") + folded.count("MatMul"), 0U);
  }
}

// The channels of the normalization are another dimension than that of the weights.
TEST(FoldBatchNorm, LeavesAMatMulOfMoreDimensions) {
  EXPECT_THAT(why_not(matrix_product({1, 2, 2})), HasSubstr("two dimensions"));
  EXPECT_THAT(why_not(matrix_product({1, 2, 2}, "Relu")), HasSubstr("two dimensions"));
}

// x -> product with w -> Add with b, whichever way round -> BatchNormalization -> y.
Message with_sum(const std::string& product, const std::vector<std::int64_t>& input,
                 const std::vector<std::int64_t>& weights, const Values& bias,
                 const std::vector<std::int64_t>& dims, bool bias_first = false) {
  GraphBuilder g;
  g.input("x", Element::kFloat, input).weight("w", {1, 2, 3, 4}, weights);
  g.weight("b", bias, dims);
  with_parameters(g).node(product, {"x", "w"}, {"c"});
  g.node("Add", {bias_first ? "b" : "c", bias_first ? "c" : "b"}, {"s"});
  return model(norm(g, "s", "y").output("y", Element::kFloat, {-1, -1}).take());
}

TEST(FoldBatchNorm, TakesABiasThatANodeOfItsOwnAdds) {
  for (const bool bias_first : {false, true}) {
    for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{2}, {1, 2}}) {
      Folded folded(with_sum("MatMul", {3, 2}, {2, 2}, {5, -7}, dims, bias_first));
      EXPECT_EQ(folded.graph.nodes.size(), 1U);
      EXPECT_THAT(folded.constant("Gemm", 1),
                  testing::ElementsAreArray(
                      near({factor(0), 2 * factor(1), 3 * factor(0), 4 * factor(1)})));
      EXPECT_THAT(folded.constant("Gemm", 2),
                  testing::ElementsAreArray(near({shift(0, 5), shift(1, -7)})));
      EXPECT_EQ(folded.graph.value(folded.node("Gemm").outputs[0]).name, "y");
      for (const char* dead : {"b", "c", "s", "scale"}) EXPECT_FALSE(folded.has(dead)) << dead;
      ASSERT_THAT(folded.list, SizeIs(1));
      EXPECT_THAT(folded.list[0].into, HasSubstr("'c' (MatMul)"));
    }
  }
  Folded image(with_sum("Conv", {1, 2, 1, 1}, {2, 2, 1, 1}, {5, -7}, {2, 1, 1}));
  EXPECT_EQ(image.graph.nodes.size(), 1U);
  EXPECT_THAT(image.constant("Conv", 2),
              testing::ElementsAreArray(near({shift(0, 5), shift(1, -7)})));
  Folded one(with_sum("Conv", {1, 2, 1, 1}, {2, 2, 1, 1}, {5}, {}));
  EXPECT_THAT(one.constant("Conv", 2), testing::ElementsAreArray(near({shift(0, 5), shift(1, 5)})));
}

TEST(FoldBatchNorm, LeavesASumOfAnythingElse) {
  // Along the last dimension of an image, which are not its channels; along the batch of a matrix.
  EXPECT_THAT(why_not(with_sum("Conv", {1, 2, 1, 2}, {2, 2, 1, 1}, {5, -7}, {2})),
              HasSubstr("adds no number per channel"));
  EXPECT_THAT(why_not(with_sum("MatMul", {2, 2}, {2, 2}, {5, -7}, {2, 1})),
              HasSubstr("adds no number per channel"));
  GraphBuilder g;
  g.input("x", Element::kFloat, {3, 2}).weight("w", {1, 2, 3, 4}, {2, 2}).weight("b", {5, -7}, {2});
  with_parameters(g).node("MatMul", {"x", "w"}, {"c"}).node("Add", {"c", "b"}, {"s"});
  g.node("Relu", {"c"}, {"r"}).output("r", Element::kFloat, {3, 2});
  EXPECT_EQ(why_not(model(norm(g, "s", "y").output("y", Element::kFloat, {3, 2}).take())),
            "others read what it reads, too");
}

TEST(FoldBatchNorm, OneNumberForAllChannelsOfGemmBecomesOneForEach) {
  GraphBuilder g;
  g.input("x").weight("w", {1, 2, 3, 4}).weight("b", {5}, {});
  with_parameters(g).node("Gemm", {"x", "w", "b"}, {"c"});
  norm(g, "c", "y").output("y");
  Folded folded(model(g.take()));
  EXPECT_THAT(folded.constant("Gemm", 2),
              testing::ElementsAreArray(near({shift(0, 5), shift(1, 5)})));
  EXPECT_FALSE(folded.has("b"));
}

TEST(FoldBatchNorm, FoldsSeveralInARow) {
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  with_parameters(g).node("Conv", {"x", "w"}, {"c"});
  norm(g, "c", "d");
  norm(g, "d", "y").output("y", Element::kFloat, kImage);
  Folded folded(model(g.take()));
  EXPECT_EQ(folded.graph.nodes.size(), 1U);
  EXPECT_THAT(folded.constant("Conv", 2),
              testing::ElementsAreArray(near({shift(0, shift(0)), shift(1, shift(1))})));
  EXPECT_FALSE(folded.has("scale"));
}

TEST(FoldBatchNorm, CopiesWhatOthersRead) {
  GraphBuilder g = convolution();
  g.node("Conv", {"x", "w"}, {"z"}).output("z", Element::kFloat, kImage);
  g.node("Relu", {"scale"}, {"r"}).output("r", Element::kFloat, {2});
  Folded folded(model(g.take()));
  EXPECT_EQ(folded.name("Conv", 1), "w__folded");
  EXPECT_TRUE(folded.has("w"));
  EXPECT_TRUE(folded.has("scale"));
  EXPECT_FALSE(folded.has("mean"));
  const auto& last = *std::ranges::find_if(
      folded.graph.nodes, [&](const Node& n) { return n.op == "Conv" && n.inputs.size() == 2; });
  EXPECT_THAT(array_of(folded.document, *folded.graph.constant(last.inputs[1])).values(),
              ElementsAre(1, 2, 3, 4));
}

TEST(FoldBatchNorm, TwoProductsOfOneWeightGetOneEach) {
  GraphBuilder g = convolution();
  with_parameters(g, "2").node("Conv", {"y", "w"}, {"d"});
  norm(g, "d", "z", "2").output("z", Element::kFloat, kImage);
  Folded folded(model(g.take()));
  EXPECT_EQ(folded.count("BatchNormalization"), 0U);
  EXPECT_FALSE(folded.has("w"));
  EXPECT_TRUE(folded.has("w__folded"));
  EXPECT_TRUE(folded.has("w__folded_1"));
}

TEST(FoldBatchNorm, TakesNamesThatAreFree) {
  GraphBuilder g = convolution();
  g.weight("c__bias", {1}, {1}).node("Relu", {"c__bias"}, {"r"}).output("r", Element::kFloat, {1});
  Folded folded(model(g.take()));
  EXPECT_EQ(folded.name("Conv", 2), "c__bias_1");
}

// An If, one of whose branches is a convolution and its normalization of captured weights.
Message branching(int ir) {
  GraphBuilder then("then");
  then.node("Conv", {"x", "w"}, {"c"});
  norm(then, "c", "t").output("t", Element::kFloat, kImage);
  GraphBuilder other("else");
  other.node("Identity", {"x"}, {"e"}).output("e", Element::kFloat, kImage);
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage).input("flag", Element::kBool, {});
  g.weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  with_parameters(g).node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
                          body_attribute("else_branch", other.take()));
  return model(g.output("y", Element::kFloat, kImage).take(), 13, ir);
}

TEST(FoldBatchNorm, WorksInBodiesOnWhatTheyCapture) {
  for (const int ir : {3, 8}) {  // in the former new constants are nodes
    Folded folded(branching(ir));
    EXPECT_EQ(folded.count("BatchNormalization"), 0U);
    EXPECT_THAT(folded.constant("Conv", 2), testing::ElementsAreArray(near({shift(0), shift(1)})));
    EXPECT_EQ(folded.count("Constant"), ir == 3 ? 1U : 0U);
    EXPECT_FALSE(folded.has("scale"));
  }
}

Message constant(const std::string& name, const Values& values,
                 const std::vector<std::int64_t>& dims) {
  GraphBuilder g;
  g.node("Constant", {}, {name}, tensor_attribute("value", floats("", dims, values)));
  Message graph = g.take();
  return std::move(*graph.fields().back().message);
}

// Two calls of a function that holds a convolution and its normalization.
Message calling(Message epsilon) {
  GraphBuilder nodes;
  nodes.node("Conv", {"a", "w"}, {"c"});
  nodes.node("BatchNormalization", {"c", "s", "b", "m", "v"}, {"d"}, std::move(epsilon));
  Message function;
  function.add(field::function::kName, std::string_view("Block"));
  function.add(field::function::kInput, std::string_view("a"));
  function.add(field::function::kOutput, std::string_view("d"));
  function.add(field::function::kAttribute, std::string_view("epsilon"));
  const auto add = [&](Message node) {
    function.add(field::function::kNode, std::make_unique<Message>(std::move(node)));
  };
  add(constant("w", {1, 2, 3, 4}, {2, 2, 1, 1}));
  add(constant("s", kScale, {2}));
  add(constant("b", kBias, {2}));
  add(constant("m", kMean, {2}));
  add(constant("v", kVariance, {2}));
  Message graph = nodes.take();
  for (Field& field : graph.fields()) {
    if (field.number == field::graph::kNode) add(std::move(*field.message));
  }
  function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  function.add(field::function::kDomain, std::string_view("my"));
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage);
  g.in_domain("my").node("Block", {"x"}, {"h"}, float_attribute("epsilon", 1));
  g.in_domain("my").node("Block", {"h"}, {"y"}, float_attribute("epsilon", 2));
  Message m = model(g.output("y", Element::kFloat, kImage).take(), 17);
  m.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
  m.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  return m;
}

TEST(FoldBatchNorm, WorksInFunctionsOnceForAllCalls) {
  Folded folded(calling(float_attribute("epsilon", kEpsilon)));
  EXPECT_THAT(folded.list, SizeIs(1));
  EXPECT_EQ(folded.count("BatchNormalization"), 0U);
  EXPECT_EQ(folded.count("Constant"), 4U);  // weights and bias, per call
  EXPECT_THAT(folded.constant("Conv", 2), testing::ElementsAreArray(near({shift(0), shift(1)})));
  Message reference;
  reference.add(field::attribute::kName, std::string_view("epsilon"));
  reference.add(field::attribute::kReference, std::string_view("epsilon"));
  reference.add(field::attribute::kType, std::uint64_t{1});
  EXPECT_THAT(why_not(calling(std::move(reference))),
              HasSubstr("takes an attribute from its function"));
}

TEST(FoldBatchNorm, LeavesWhatOthersReadOrGive) {
  GraphBuilder output = convolution();
  EXPECT_EQ(why_not(model(output.output("c", Element::kFloat, kImage).take())),
            "others read what it reads, too");
  GraphBuilder reader = convolution();
  reader.node("Relu", {"c"}, {"r"}).output("r", Element::kFloat, kImage);
  EXPECT_EQ(why_not(model(reader.take())), "others read what it reads, too");

  GraphBuilder then("then");
  norm(then, "c", "t").output("t", Element::kFloat, kImage);
  GraphBuilder other("else");
  other.node("Identity", {"x"}, {"e"}).output("e", Element::kFloat, kImage);
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage).input("flag", Element::kBool, {});
  g.weight("w", {1, 2, 3, 4}, {2, 2, 1, 1}).node("Conv", {"x", "w"}, {"c"});
  with_parameters(g).node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
                          body_attribute("else_branch", other.take()));
  EXPECT_EQ(why_not(model(g.output("y", Element::kFloat, kImage).take())),
            "what it reads is made outside of its body");
}

TEST(FoldBatchNorm, LeavesParametersThatACallerMayReplace) {
  for (const char* name : {"mean", "w"}) {
    GraphBuilder g = convolution();
    g.input(name, Element::kFloat, name[0] == 'w' ? kImage : std::vector<std::int64_t>{2});
    EXPECT_THAT(why_not(model(g.take())), HasSubstr("no float32 constant")) << name;
  }
}

// The surroundings of the normalization, with something between or at it.
Message around(const std::vector<std::string>& made_by, std::vector<Message> attributes,
               int opset = 13, const std::vector<std::string>& outputs = {"y"}) {
  GraphBuilder g;
  g.input("x", Element::kFloat, kImage).weight("w", {1, 2, 3, 4}, {2, 2, 1, 1});
  with_parameters(g);
  std::string in = "x";
  for (const std::string& op : made_by) {
    const std::string out = in + "1";
    op == "Conv" ? g.node(op, {in, "w"}, {out}) : g.node(op, {in}, {out});
    in = out;
  }
  Message node;
  for (const std::string& input : {in, std::string("scale"), std::string("bias"),
                                   std::string("mean"), std::string("variance")})
    node.add(field::node::kInput, kept(input));
  for (const std::string& out : outputs) node.add(field::node::kOutput, kept(out));
  node.add(field::node::kOpType, std::string_view("BatchNormalization"));
  for (Message& each : attributes)
    node.add(field::node::kAttribute, std::make_unique<Message>(std::move(each)));
  g.add(field::graph::kNode, std::move(node));
  return model(g.output("y", Element::kFloat, kImage).take(), opset);
}

std::vector<Message> only(Message attribute) {
  std::vector<Message> all;
  all.push_back(std::move(attribute));
  return all;
}

TEST(FoldBatchNorm, SaysWhyItLeavesOthers) {
  EXPECT_THAT(why_not(around({"Conv", "Relu"}, {})), HasSubstr("(Relu) makes what it reads"));
  EXPECT_EQ(why_not(around({}, {})), "what it reads is made by no node of its graph");
  EXPECT_EQ(why_not(around({"Conv"}, only(attribute("training_mode", 1)), 15)), "it trains");
  EXPECT_EQ(why_not(around({"Conv"}, {}, 13, {"y", "m", "v"})), "it trains");
  EXPECT_EQ(why_not(around({"Conv"}, {}, 6)), "it trains");
  EXPECT_EQ(why_not(around({"Conv"}, only(attribute("is_test", 1)), 6)), "");
  EXPECT_EQ(why_not(around({"Conv"}, only(attribute("spatial", std::int64_t{0})), 8)),
            "it is not spatial");
}

TEST(FoldBatchNorm, LeavesWhatWouldLeaveTheRange) {
  const auto with = [](const Values& weights, const Values& variance) {
    GraphBuilder g;
    g.input("x", Element::kFloat, kImage).weight("w", weights, {2, 2, 1, 1});
    g.weight("scale", {3e38F, 1}, {2}).weight("bias", kBias, {2}).weight("mean", kMean, {2});
    g.weight("variance", variance, {2}).node("Conv", {"x", "w"}, {"c"});
    norm(g, "c", "y").output("y", Element::kFloat, kImage);
    return why_not(model(g.take()));
  };
  EXPECT_THAT(with({10, 1, 1, 1}, {1, 1}), HasSubstr("would leave float32's range"));
  EXPECT_THAT(with({1, 1, 1, 1}, {-1, 1}), HasSubstr("would leave float32's range"));
}

class FoldedFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("fold_batch_norm");
    options_.cast_optional_params = true;
    options_.verify = "none";
    options_.fold_batch_norm = true;
  }

  fs::path path(const std::string& name) const { return folder_ / name; }
  Result convert(const Message& made) {
    save(path("in.onnx"), made);
    Result result = convert_model(path("in.onnx"), path("out.onnx"), options_);
    EXPECT_THAT(inspect_model(path("out.onnx")).findings, IsEmpty());
    return result;
  }

  fs::path folder_;
  Options options_;
};

TEST_F(FoldedFiles, AreConvertedOnceAndAreTheSameTheSecondTime) {
  for (const char* io : {"keep", "low"}) {
    options_.io = io;
    for (const int opset : {9, 17}) {
      const Result result = convert(model(convolution().take(), opset));
      EXPECT_EQ(result.report.heavy_low_nodes, 1);
      EXPECT_EQ(result.report.float_nodes, 1);
      EXPECT_THAT(result.report.to_text(), HasSubstr("1 of 1 batch normalizations were folded\n"));
      EXPECT_THAT(result.report.to_json(), HasSubstr("\"batch_norms\""));
      const Report again = convert_model(path("out.onnx"), path("again.onnx"), options_).report;
      EXPECT_TRUE(again.unchanged);
      EXPECT_EQ(contents(path("again.onnx")), contents(path("out.onnx")));
      apply_plan(path("in.onnx"), path("applied.onnx"), Plan::from_json(result.plan.to_json()));
      EXPECT_EQ(contents(path("applied.onnx")), contents(path("out.onnx")));
    }
  }
}

// Without anything that goes low the folded model is written all the same.
TEST_F(FoldedFiles, AreWrittenWhereNothingElseChanges) {
  options_.excluded_names = {"*"};
  for (const int opset : {9, 17}) {
    const Report report = convert(model(convolution().take(), opset)).report;
    EXPECT_FALSE(report.unchanged);
    EXPECT_EQ(report.nodes, 1);
  }
}

TEST_F(FoldedFiles, WithoutTheOptionNothingIsLookedAt) {
  options_.fold_batch_norm = false;
  const Report report = convert(model(convolution().take())).report;
  EXPECT_THAT(report.batch_norms, IsEmpty());
  EXPECT_EQ(report.nodes, 2);
}

TEST_F(FoldedFiles, OldOnesAreRaisedAndFolded) {
  const Report report = convert(around({"Conv"}, only(attribute("is_test", 1)), 6)).report;
  EXPECT_EQ(report.opset_after, 7);
  EXPECT_EQ(report.nodes, 1);
}

TEST_F(FoldedFiles, MayHaveExternalDataAndKeepIt) {
  const std::vector<std::int64_t> shape{32, 32, 1, 1};
  const Values weights(1024, 1);
  const Values channel(32, 1);
  {
    std::ofstream data(path("w.bin"), std::ios::binary);
    data.write(reinterpret_cast<const char*>(weights.data()), 4096);
  }
  Message w = floats("w", shape, {});
  w.remove(field::tensor::kRawData);
  Message location;
  location.add(field::pair::kKey, std::string_view("location"));
  location.add(field::pair::kValue, std::string_view("w.bin"));
  w.add(field::tensor::kExternalData, std::make_unique<Message>(std::move(location)));
  w.add(field::tensor::kLocation, std::uint64_t{1});
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 32, 1, 1}).initializer(std::move(w));
  for (const char* name : {"scale", "bias", "mean", "variance"}) g.weight(name, channel, {32});
  g.node("Conv", {"x", "w"}, {"c"});
  norm(g, "c", "y").output("y", Element::kFloat, {1, 32, 1, 1});
  const Message made = model(g.take());
  const Report report = convert(made).report;
  EXPECT_EQ(report.nodes, 1);
  EXPECT_GT(report.bytes_before, 4096);
  EXPECT_TRUE(fs::exists(path("out.onnx.data")));
  EXPECT_EQ(fs::file_size(path("w.bin")), 4096U);
  // The data of the input is not written over.
  fs::rename(path("in.onnx"), path("other.onnx"));
  fs::rename(path("w.bin"), path("v.bin"));
  EXPECT_THROW(convert_model(path("other.onnx"), path("v.bin"), options_), Error);
  fs::rename(path("v.bin"), path("w.bin"));
  EXPECT_THROW(convert_model(path("other.onnx"), path("w.bin"), options_), ConfigError);
}

}  // namespace
}  // namespace mezzo::convert
