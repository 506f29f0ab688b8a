// Angles of positions, and coordinates.
#include <gmock/gmock.h>

#include <numeric>

#include "decision_on.h"

namespace mezzo::convert {
namespace {

constexpr const char* kLowTypes[] = {"float16", "bfloat16"};

std::vector<float> counted(std::size_t count, float step = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>(i);
  return values;
}

// The sine of positions times frequencies.
Message angles(Element element, const char* before, const char* product) {
  GraphBuilder g;
  g.input("ids", element, {4, 1})
      .weight("half", {0.5F}, {})
      .weight("w", std::vector<float>(64, 0.1F), {8, 8});
  g.weight("frequencies", std::vector<float>(8, 0.25F), {1, 8});
  std::string at = "ids";
  if (element != Element::kFloat) {
    g.node("Cast", {"ids"}, {"p"}, attribute("to", 1));
    at = "p";
  }
  if (std::string(before) != "") {
    g.node(before, {at, "half"}, {"b"});
    at = "b";
  }
  if (std::string(product) == "Einsum") {
    g.node("Einsum", {at, "frequencies"}, {"a"}, attribute("equation", "ij,jk->ik"));
  } else {
    g.node(product, {at, "frequencies"}, {"a"});
  }
  g.node("Sin", {"a"}, {"s"});
  return model(g.node("MatMul", {"s", "w"}, {"y"}).output("y", Element::kFloat, {4, 8}).take());
}

TEST(Positions, KeepTheAnglesMadeOfThem) {
  for (const char* dtype : kLowTypes) {
    for (const Element element : {Element::kInt64, Element::kFloat}) {
      for (const char* before : {"", "Mul", "Add", "Div"}) {
        for (const char* product : {"MatMul", "Gemm", "Einsum", "Mul"}) {
          const Message made = angles(element, before, product);
          EXPECT_FALSE(decision_on(made, "a", {}, dtype).low)
              << dtype << ' ' << before << ' ' << product;
          if (std::string(before) != "") {
            EXPECT_FALSE(decision_on(made, "b", {}, dtype).low);
          }
          EXPECT_TRUE(decision_on(made, "y", {}, dtype).low);
        }
      }
    }
  }
}

TEST(Positions, OfLaterLayersAreNoPositions) {
  GraphBuilder g;
  g.input("x").weight("w");
  g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"}).node("Sin", {"b"}, {"s"});
  const Message made = model(g.node("MatMul", {"s", "w"}, {"y"}).output("y").take());
  EXPECT_TRUE(decision_on(made, "b").low);
}

// A frequency of thousands shows every digit of what it multiplies.
TEST(Positions, TimesHighFrequenciesAreFloatWhoeverMadeThem) {
  for (const float frequency : {1.0F, 31416.0F}) {
    GraphBuilder g;
    g.input("x").weight("w").weight("frequency", {frequency, frequency / 2}, {1, 2});
    g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"});
    g.node("Mul", {"b", "frequency"}, {"t"}).node("Sin", {"t"}, {"s"});
    const Message made = model(g.node("MatMul", {"s", "w"}, {"y"}).output("y").take());
    for (const char* dtype : kLowTypes) {
      EXPECT_EQ(decision_on(made, "a", {}, dtype).low, frequency == 1) << dtype;
      EXPECT_TRUE(decision_on(made, "y", {}, dtype).low) << dtype;
    }
  }
}

// The expected place less the own one, as stereo matching has it.
Message disparity(const char* way) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {512, 512})
      .weight("w", std::vector<float>(512 * 512, 0.1F), {512, 512});
  g.weight("column", counted(512), {512, 1}).weight("row", counted(512), {512});
  g.node("MatMul", {"x", "w"}, {"c"}).node("Softmax", {"c"}, {"p"});
  if (std::string(way) == "MatMul") {
    g.node("MatMul", {"p", "column"}, {"e"});
    g.node("Sub", {"e", "column"}, {"d"});
  } else {
    g.node("Mul", {"p", "row"}, {"q"})
        .node("ReduceSum", {"q"}, {"e"}, attribute("keepdims", std::int64_t{0}));
    g.node("Sub", {"row", "e"}, {"d"});
  }
  return model(g.output("d", Element::kFloat, {}).take());
}

TEST(Positions, LessPositionsAreFloat) {
  for (const char* dtype : kLowTypes) {
    for (const char* way : {"MatMul", "Mul"}) {
      const Message made = disparity(way);
      EXPECT_FALSE(decision_on(made, "e", {}, dtype).low) << way;
      EXPECT_FALSE(decision_on(made, "d", {}, dtype).low) << way;
      EXPECT_TRUE(decision_on(made, "c", {}, dtype).low) << way;
    }
  }
}

TEST(Coordinates, AndWhatIsAddedToThemAreFloat) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 16, 16})
      .weight("w", std::vector<float>(4, 0.5F), {2, 2, 1, 1});
  g.weight("grid", counted(2 * 16 * 16, 0.125F), {1, 2, 16, 16}).weight("size", {32}, {});
  g.node("Conv", {"x", "w"}, {"o"}).node("Conv", {"o", "w"}, {"o2"});
  g.node("Add", {"grid", "o"}, {"a"})
      .node("Add", {"a", "o2"}, {"b"})
      .node("Div", {"b", "size"}, {"n"});
  g.node("Transpose", {"n"}, {"t"}, integers_attribute("perm", {0, 2, 3, 1}));
  g.node("GridSample", {"o", "t"}, {"s"}).node("Conv", {"s", "w"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {1, 2, 16, 16}).take());
  for (const char* dtype : kLowTypes) {
    for (const char* node : {"a", "b", "n", "t"})
      EXPECT_FALSE(decision_on(made, node, {}, dtype).low) << node << ' ' << dtype;
  }
  EXPECT_TRUE(decision_on(made, "o").low);
}

TEST(Coordinates, OfDeformableConvolutionsAreFloat) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 16, 16})
      .weight("w", std::vector<float>(4, 0.5F), {2, 2, 1, 1});
  g.weight("scale", {2}, {});
  g.node("Conv", {"x", "w"}, {"c"})
      .node("Conv", {"c", "w"}, {"o"})
      .node("Mul", {"o", "scale"}, {"s"});
  g.node("DeformConv", {"c", "w", "s"}, {"d"}).node("Conv", {"d", "w"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {1, 2, 16, 16}).take(), 19);
  EXPECT_FALSE(decision_on(made, "s").low);
  EXPECT_FALSE(decision_on(made, "d").low);
  EXPECT_TRUE(decision_on(made, "y").low);
}

}  // namespace
}  // namespace mezzo::convert
