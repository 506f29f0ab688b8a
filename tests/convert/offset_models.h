// Models whose numbers share an offset before a normalisation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "builder.h"

namespace mezzo::convert {

/// A graph with products of 4 numbers: `w` keeps their spread, `gamma` normalises.
inline GraphBuilder graph_of_fours(float spread = 1) {
  const std::vector<float> w{0.5F,  -0.25F, 0.75F, 0.375F, -0.625F, 0.5F,   0.125F, -0.5F,
                             0.25F, 0.75F,  -0.5F, 0.625F, 0.375F,  0.125F, 0.625F, -0.75F};
  std::vector<float> scaled = w;
  for (float& each : scaled) each *= spread;
  GraphBuilder g;
  g.input("x", Element::kFloat, {8, 4}).weight("w", w, {4, 4}).weight("v", scaled, {4, 4});
  g.weight("gamma", {1, 1, 1, 1}, {4}).weight("beta", {0, 0, 0, 0}, {4});
  return g;
}

inline Message norm_and_product(GraphBuilder& g, const std::string& norm = "LayerNormalization") {
  const std::vector<std::string> inputs = norm == "LayerNormalization"
                                              ? std::vector<std::string>{"a", "gamma", "beta"}
                                              : std::vector<std::string>{"a"};
  g.node(norm, inputs, {"l"}).node("MatMul", {"l", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {8, 4}).take());
}

/// A product, the offset, the normalisation, a product.
inline Message shifted_norm(float offset, float spread,
                            const std::string& norm = "LayerNormalization") {
  GraphBuilder g = graph_of_fours(spread);
  g.weight("offset", {offset}, {});
  g.node("MatMul", {"x", "v"}, {"p"}).node("Add", {"p", "offset"}, {"a"});
  return norm_and_product(g, norm);
}

inline Message biased_norm(std::vector<float> bias) {
  GraphBuilder g = graph_of_fours(0.3F);
  g.weight("bias", std::move(bias), {4}).node("Gemm", {"x", "v", "bias"}, {"a"});
  return norm_and_product(g);
}

/// Numbers that a caller gives, and that a product reads as well.
inline Message given_norm() {
  GraphBuilder g = graph_of_fours();
  g.node("Relu", {"x"}, {"r"}).node("LayerNormalization", {"r", "gamma", "beta"}, {"l"});
  g.node("MatMul", {"r", "w"}, {"q"}).output("q", Element::kFloat, {8, 4});
  g.node("MatMul", {"l", "w"}, {"p"}).output("p", Element::kFloat, {8, 4});
  return model(g.take());
}

/// x - mean(x), of a residual stream that the offset came into before.
inline Message shifted_pieces(const std::string& mean) {
  GraphBuilder g = graph_of_fours(0.3F);
  g.weight("offset", {100}, {}).weight("count", {4}, {});
  g.initializer(tensor<std::int64_t>("axes", Element::kInt64, {1}, {-1}));
  g.node("MatMul", {"x", "v"}, {"p"}).node("Add", {"p", "offset"}, {"a"});
  g.node("MatMul", {"x", "w"}, {"q"}).node("Add", {"a", "q"}, {"b"});
  if (mean == "ReduceMean") {
    g.node(mean, {"b"}, {"m"}, integers_attribute("axes", {-1}));
  } else {
    g.node(mean, {"b", "axes"}, {"sum"}).node("Div", {"sum", "count"}, {"m"});
  }
  g.node("Sub", {"b", "m"}, {"d"}).node("MatMul", {"d", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {8, 4}).take());
}

inline Message biased_channels(const std::string& norm, std::vector<float> bias) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("bias", std::move(bias), {2});
  g.weight("k", {0.5F, -0.25F, 0.75F, 0.375F}, {2, 2, 1, 1});
  g.weight("one", {1, 1}, {2}).weight("none", {0, 0}, {2});
  g.node("Conv", {"x", "k", "bias"}, {"p"});
  if (norm == "GroupNormalization") {
    g.node(norm, {"p", "one", "none"}, {"n"}, attribute("num_groups", std::int64_t{1}));
  } else if (norm == "InstanceNormalization") {
    g.node(norm, {"p", "one", "none"}, {"n"});
  } else {
    g.node(norm, {"p"}, {"n"});
  }
  g.node("Conv", {"n", "k"}, {"y"}).output("y", Element::kFloat, {1, 2, 4, 4});
  return model(g.take(), 22);
}

/// An embedding whose rows lie around the offset, read by a product too.
inline Message normalised_table(float offset) {
  GraphBuilder g = graph_of_fours();
  std::vector<float> table;
  for (int i = 0; i < 40; ++i) table.push_back(offset + 0.1F * static_cast<float>(i * 7 % 11 - 5));
  g.weight("table", table, {10, 4}).input("ids", Element::kInt64, {8});
  g.node("Gather", {"table", "ids"}, {"e"});
  g.node("LayerNormalization", {"e", "gamma", "beta"}, {"l"}).node("MatMul", {"l", "w"}, {"y"});
  g.node("MatMul", {"e", "w"}, {"z"}).output("z", Element::kFloat, {8, 4});
  return model(g.output("y", Element::kFloat, {8, 4}).take());
}

inline Message residual_stream() {
  GraphBuilder g = graph_of_fours();
  g.weight("bias", {0.1F, -0.2F, 0.05F, 0.15F}, {4});
  g.node("MatMul", {"x", "w"}, {"p"}).node("Add", {"p", "bias"}, {"b"});
  g.node("LayerNormalization", {"b", "gamma", "beta"}, {"l"}).node("MatMul", {"l", "w"}, {"q"});
  g.node("Add", {"b", "q"}, {"r"}).node("LayerNormalization", {"r", "gamma", "beta"}, {"l2"});
  g.node("MatMul", {"l2", "w"}, {"y"}).output("y", Element::kFloat, {8, 4});
  return model(g.take());
}

inline Message batch_norm(std::vector<float> mean, std::vector<float> variance,
                          std::vector<float> scale) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("bias", mean, {2});
  g.weight("k", {5e-4F, -2.5e-4F, 7.5e-4F, 3.75e-4F}, {2, 2, 1, 1});
  g.weight("scale", std::move(scale), {2}).weight("none", {0, 0}, {2});
  g.weight("mean", mean, {2}).weight("variance", std::move(variance), {2});
  g.node("Conv", {"x", "k", "bias"}, {"p"});
  g.node("BatchNormalization", {"p", "scale", "none", "mean", "variance"}, {"n"});
  g.weight("v", {1, 0.5F, -0.5F, 1}, {2, 2, 1, 1}).node("Conv", {"n", "v"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 2, 4, 4}).take(), 22);
}

}  // namespace mezzo::convert
