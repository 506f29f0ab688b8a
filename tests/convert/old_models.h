// Models with operators as opsets up to 11 had them, and what they give.
#pragma once

#include <string>
#include <vector>

#include "builder.h"

namespace mezzo::convert {

/// A model with one input 'x' and one output 'y', in the opset in which it is written.
struct OldModel {
  std::string name;
  int opset = 0;
  std::vector<std::int64_t> dims;  // of x
  std::vector<float> x, y;
  Message graph;
};

inline const std::vector<std::int64_t>& old_image() {
  static const std::vector<std::int64_t> kDims{1, 2, 2, 2};
  return kDims;
}

/// x of two channels and four places, a node that reads it and perhaps a weight, y.
template <typename... Attributes>
Message old_graph(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::int64_t>& dims, Attributes... attributes) {
  GraphBuilder g;
  g.input("x", Element::kFloat, old_image());
  g.weight("per_channel", {10, -2}, {2}).weight("one", {3}, {1});
  g.weight("element", {3}, {1, 1});
  g.weight("plane", {10, 20, 30, 40}, {2, 2});
  g.weight("two", {2}, {1}).weight("axis", {2}, {1});
  g.node("Identity", {"x"}, {"i"});  // its shape is told by nobody
  g.node(op, inputs, {"y"}, std::move(attributes)...);
  return g.output("y", Element::kFloat, dims).take();
}

/// Running sums over two steps of each of two sequences.
template <typename... Attributes>
Message old_scan(Attributes... attributes) {
  const std::vector<std::int64_t> row{1, 2};
  GraphBuilder body("body");
  body.input("state", Element::kFloat, row).input("step", Element::kFloat, row);
  body.node("Add", {"state", "step"}, {"sum"}).node("Identity", {"sum"}, {"seen"});
  body.output("sum", Element::kFloat, row).output("seen", Element::kFloat, row);
  GraphBuilder g;
  g.input("x", Element::kFloat, {2, 2, 1, 2}).weight("start", {10, 20, 0, 1}, {2, 1, 2});
  g.node("Scan", {"", "start", "x"}, {"end", "y"}, body_attribute("body", body.take()),
         attribute("num_scan_inputs", 1), std::move(attributes)...);
  return g.output("y", Element::kFloat, {2, 2, 1, 2}).take();
}

inline std::vector<OldModel> old_models() {
  const std::vector<std::int64_t> image = old_image();
  const std::vector<float> x{1, 2, 3, 4, -1, -2, -3, -4};
  std::vector<OldModel> all;
  const auto add = [&](std::string name, int opset, std::vector<float> y, Message graph) {
    all.push_back({std::move(name), opset, image, x, std::move(y), std::move(graph)});
  };
  add("AddAtAxis", 6, {11, 12, 13, 14, -3, -4, -5, -6},
      old_graph("Add", {"i", "per_channel"}, image, attribute("broadcast", 1),
                attribute("axis", 1)));
  add("SubAtNegativeAxis", 6, {-9, -8, -7, -6, 1, 0, -1, -2},
      old_graph("Sub", {"i", "per_channel"}, image, attribute("broadcast", 1),
                attribute("axis", -3)));
  add("MulAtTheEnd", 6, {10, 40, 90, 160, -10, -40, -90, -160},
      old_graph("Mul", {"i", "plane"}, image, attribute("broadcast", 1), attribute("axis", 2)));
  add("DivByOne", 1, {0.5F, 1, 1.5F, 2, -0.5F, -1, -1.5F, -2}, [] {
    GraphBuilder g;
    g.input("x", Element::kFloat, old_image()).weight("k", {2}, {});
    g.node("Div", {"x", "k"}, {"y"}, attribute("broadcast", 1), attribute("axis", std::int64_t{0}));
    return g.output("y", Element::kFloat, old_image()).take();
  }());
  add("AddOneElementAnywhere", 6, {4, 5, 6, 7, 2, 1, 0, -1},
      old_graph("Add", {"i", "element"}, image, attribute("broadcast", 1), attribute("axis", 3)));
  add("SlopePerChannel", 6, {1, 2, 3, 4, 2, 4, 6, 8},
      old_graph("PRelu", {"i", "per_channel"}, image));
  add("SlopeForAll", 6, {1, 2, 3, 4, -3, -6, -9, -12}, old_graph("PRelu", {"i", "one"}, image));
  add("TileOneAxis", 1, {1, 2, 3, 4, 1, 2, 3, 4, -1, -2, -3, -4, -1, -2, -3, -4},
      old_graph("Tile", {"i", "two", "axis"}, {1, 2, 4, 2}));
  add("UpsampleWide", 1, {1, 1, 2, 2, 3, 3, 4, 4, -1, -1, -2, -2, -3, -3, -4, -4},
      old_graph("Upsample", {"i"}, {1, 2, 2, 4}, float_attribute("height_scale", 1),
                float_attribute("width_scale", 2)));
  add("SplitBySizesOfAnInput", 1, {-2, -2, 2, 2}, [] {
    GraphBuilder g;
    g.input("x", Element::kFloat, old_image()).weight("sizes", {1, 1}, {2});
    g.node("Split", {"x", "sizes"}, {"a", "b"}, attribute("axis", 2))
        .node("Sub", {"a", "b"}, {"y"});
    return g.output("y", Element::kFloat, {1, 2, 1, 2}).take();
  }());
  all.push_back({"ScanOfABatch", 8, {2, 2, 1, 2}, x, {11, 22, 14, 26, -1, -1, -4, -5}, old_scan()});
  all.push_back({"ScanOfABatchFromItsEnd",
                 8,
                 {2, 2, 1, 2},
                 x,
                 {13, 24, 14, 26, -3, -3, -4, -5},
                 old_scan(integers_attribute("directions", {1}))});
  return all;
}

}  // namespace mezzo::convert
