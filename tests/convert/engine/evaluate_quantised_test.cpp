// The built-in evaluator on integers: scales, zero points, blocks, saturation.
#include <gmock/gmock.h>

#include "evaluator.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Dims = std::vector<std::int64_t>;

Array bytes_array(const Dims& dims, const std::vector<std::uint8_t>& values) {
  return array(Element::kUint8, dims, values);
}

// Scales per row and per column; halves are rounded to even.
TEST(EvaluatedQuantisation, ScalesRowsAndColumnsApart) {
  GraphBuilder g;
  g.input("a", Element::kUint8, {2, 2}).input("b", Element::kUint8, {2, 2});
  g.weight("as", {0.5F, 0.25F}, {2}).weight("bs", {1, 2}, {2}).weight("ys", {1}, {});
  g.initializer(tensor<std::uint8_t>("az", Element::kUint8, {2}, {1, 2}));
  g.initializer(tensor<std::uint8_t>("bz", Element::kUint8, {2}, {0, 3}));
  g.initializer(tensor<std::uint8_t>("yz", Element::kUint8, {}, {10}));
  g.node("QLinearMatMul", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"y"});
  g.output("y", Element::kUint8, {2, 2});
  const Array a = bytes_array({2, 2}, {3, 4, 4, 6});
  const Array b = bytes_array({2, 2}, {1, 2, 5, 200});
  // Rows (2, 3) * 0.5 and (2, 4) * 0.25; columns (1, 5) and (-1, 197) * 2.
  const std::vector<double> expected{18, 255, 16, 255};
  EXPECT_EQ(evaluated(model(g.take()), {{"a", a}, {"b", b}}).at(0).values(), expected);
}

// Blocks of two along the rows of three: the last block is short.
TEST(EvaluatedQuantisation, ScalesBlocks) {
  const auto dequantised = [](std::int64_t block, const Dims& scales) {
    GraphBuilder g;
    g.input("x", Element::kUint8, {2, 3}).weight("s", {0.5F, 2, 1, 4}, scales);
    g.initializer(tensor<std::uint8_t>("z", Element::kUint8, scales, {1, 2, 3, 4}));
    g.node("DequantizeLinear", {"x", "s", "z"}, {"y"}, attribute("axis", 1),
           attribute("block_size", block));
    const Message made = model(g.output("y", Element::kFloat, {2, 3}).take(), 21, 10);
    return evaluated(made, {{"x", bytes_array({2, 3}, {3, 5, 7, 3, 4, 6})}}).at(0).values();
  };
  EXPECT_EQ(dequantised(2, {2, 2}), (std::vector<double>{1, 2, 10, 0, 1, 8}));
  EXPECT_THAT(
      [&] {
        dequantised(1, {2, 2});
      },
      ThrowsMessage<UnsupportedError>(HasSubstr("blocks of 1 values along axis 1")));
  EXPECT_THROW(dequantised(2, {4}), UnsupportedError);
}

TEST(EvaluatedQuantisation, ConvolvesWithAScalePerChannelAndPadsWithZero) {
  GraphBuilder g;
  g.input("x", Element::kUint8, {1, 1, 2, 2});
  g.initializer(tensor<std::int8_t>("w", Element::kInt8, {2, 1, 3, 3},
                                    {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, -2, 0, 0, 0, 0}));
  g.initializer(tensor<std::int32_t>("bias", Element::kInt32, {2}, {4, -1}));
  g.weight("xs", {0.5F}, {}).weight("ws", {1, 0.5F}, {2}).weight("ys", {0.5F}, {});
  g.initializer(tensor<std::uint8_t>("xz", Element::kUint8, {}, {100}));
  g.initializer(tensor<std::int8_t>("wz", Element::kInt8, {}, {0}));
  g.initializer(tensor<std::int8_t>("yz", Element::kInt8, {}, {-3}));
  g.node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"}, {"y"},
         integers_attribute("pads", {1, 1, 1, 1}));
  g.output("y", Element::kInt8, {1, 2, 2, 2});
  const Array x = bytes_array({1, 1, 2, 2}, {101, 102, 103, 104});
  // Sums 1 + 2 + 3 + 4 and the bias, everywhere; -2 x - 1, halved and rounded to even.
  EXPECT_THAT(evaluated(model(g.take()), {{"x", x}}).at(0).values(),
              ElementsAre(11, 11, 11, 11, -5, -5, -7, -7));
}

}  // namespace
}  // namespace mezzo::convert
