// Shapes against those that libonnx-testdata declares, and sizes of values in between.
#include "convert/graph/shape_rules.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <map>

#include "builder.h"
#include "convert/graph/sizes.h"
#include "convert/onnx/document.h"
#include "corpus.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;

TEST(ShapeRules, AgreeWithTheDeclaredShapesOfTheCorpus) {
  std::size_t compared = 0, known = 0;
  std::map<std::string, int> unknown;
  for (const auto& path : corpus_models()) {
    Document document(path);
    const Graph graph(document);
    KnownShapes shapes(graph.values.size());
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.has_dims && value.producer == kNone) shapes[v] = value.dims;
    }
    for (const NodeId id : graph.scope(0).ordered) {
      const Node& node = graph.node(id);
      if (!node.bodies.empty() || node.instance != kNone) continue;
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] == kNone) continue;
        const auto v = static_cast<std::size_t>(node.outputs[i]);
        const Message* constant = graph.constant(node.outputs[i]);
        const auto found = constant != nullptr ? repeated_integers(*constant, field::tensor::kDims)
                                               : output_shape(graph, node, i, shapes);
        shapes[v] = found;
        const Value& value = graph.values[v];
        if (!value.has_dims || !value.type.is_plain_tensor()) continue;
        ++compared;
        if (!found) {
          ++unknown[std::string(node.op)];
          continue;
        }
        ++known;
        const bool is_open = std::ranges::find(*found, kUnknownDim) != found->end() ||
                             std::ranges::find(value.dims, kUnknownDim) != value.dims.end();
        if (is_open) {
          EXPECT_EQ(found->size(), value.dims.size()) << path << ' ' << value.name;
        } else {
          EXPECT_EQ(*found, value.dims) << path << ' ' << value.name;
        }
      }
    }
  }
  std::printf("%zu of %zu declared shapes follow from those of the inputs\n", known, compared);
  for (const auto& [op, count] : unknown) std::printf("  %d x %s\n", count, op.c_str());
  EXPECT_GT(known, 700U);
}

TEST(ShapeRules, BroadcastAsNumpyDoes) {
  EXPECT_THAT(broadcast({2, 1, 4}, {3, 1}), ElementsAre(2, 3, 4));
  EXPECT_THAT(broadcast({}, {5}), ElementsAre(5));
  EXPECT_THAT(broadcast({kUnknownDim, 1}, {8}), ElementsAre(kUnknownDim, 8));
  EXPECT_THAT(broadcast({1}, {kUnknownDim}), ElementsAre(kUnknownDim));
  EXPECT_THAT(broadcast({kUnknownDim}, {3}), ElementsAre(3));
}

std::int64_t size_of_value(const Message& made, const std::string& name) {
  Document document(bytes_of(made));
  const Graph graph(document);
  return estimated_sizes(graph).at(static_cast<std::size_t>(graph.scope(0).names.at(name)));
}

TEST(Sizes, AnUnknownBatchCountsAsOne) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {-1, 3, 32, 32})
      .weight("w", std::vector<float>(216, 1), {8, 3, 3, 3});
  g.node("Conv", {"x", "w"}, {"y"});
  g.node("Shape", {"y"}, {"s"})
      .node("Reshape", {"y", "s"}, {"z"})
      .output("z", Element::kFloat, {-1, -1, -1, -1});
  const Message made = model(g.take());
  EXPECT_EQ(size_of_value(made, "y"), 8 * 30 * 30);
  EXPECT_EQ(size_of_value(made, "z"), 8 * 30 * 30) << "as large as what it is made of";
}

TEST(Sizes, RanksThatDoubleFromNodeToNodeAreGivenUp) {
  GraphBuilder g;
  g.initializer(tensor("v0", Element::kInt64, {1, 1}, std::vector<std::int64_t>{0}));
  std::string last = "v0";
  for (int i = 1; i < 60; ++i) {
    std::string next(1, 'v');
    next += std::to_string(i);
    g.node("Gather", {last, last}, {next});
    last = next;
  }
  g.node("Cast", {last}, {"y"}, attribute("to", 1)).output("y", Element::kFloat, {});
  EXPECT_EQ(size_of_value(model(g.take()), last), 1);
}

TEST(Sizes, AreKnownThroughBodiesAndBounded) {
  GraphBuilder then("then");
  then.node("Concat", {"x", "x"}, {"t"}, attribute("axis", std::int64_t{0}))
      .output("t", Element::kFloat, {-1, 2});
  GraphBuilder other("else");
  other.node("Concat", {"x", "x"}, {"e"}, attribute("axis", std::int64_t{0}))
      .output("e", Element::kFloat, {-1, 2});
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {});
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  const std::vector<std::int64_t> many(2, std::int64_t{1} << 62);
  g.initializer(tensor("many", Element::kInt64, {2}, many));
  g.node("Tile", {"y", "many"}, {"z"}).output("z", Element::kFloat, {-1, -1});
  const Message made = model(g.take());
  EXPECT_EQ(size_of_value(made, "y"), 8);
  EXPECT_EQ(size_of_value(made, "z"), 8) << "too large to be known: as large as what it reads";
}

}  // namespace
}  // namespace mezzo::convert
