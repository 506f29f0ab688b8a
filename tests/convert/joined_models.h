// Models with operators that ONNX Runtime joins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "builder.h"

namespace mezzo::convert {

inline Message identity_weights(const std::string& name, std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(rows * rows));
  for (std::int64_t i = 0; i < rows; ++i) values[static_cast<std::size_t>(i * rows + i)] = 1;
  return floats(name, {rows, rows}, values);
}

// x -> MatMul -> Slice -> Transpose [-> between -> Transpose ...] -> MatMul, both with constants.
inline Message moved_batch(const std::vector<std::vector<std::int64_t>>& orders,
                           const std::string& between = "") {
  const std::size_t rank = orders[0].size();
  GraphBuilder g;
  std::vector<std::int64_t> dims(rank, 4);
  dims[0] = 8;
  g.input("x", Element::kFloat, dims);
  g.initializer(identity_weights("w", 4)).initializer(identity_weights("v", 4));
  g.weight("half", {0.5F}, {});
  g.initializer(tensor<std::int64_t>("zero", Element::kInt64, {1}, {0}));
  g.initializer(tensor<std::int64_t>("four", Element::kInt64, {1}, {4}));
  g.initializer(tensor<std::int64_t>("same", Element::kInt64, {static_cast<std::int64_t>(rank)},
                                     std::vector<std::int64_t>(rank, 4)));
  g.node("MatMul", {"x", "w"}, {"first"}).node("Slice", {"first", "zero", "four"}, {"part"});
  std::string at = "part";
  for (std::size_t i = 0; i < orders.size(); ++i) {
    if (i > 0 && !between.empty()) {
      std::vector<std::string> inputs{at};
      if (between == "Mul") inputs.emplace_back("half");
      if (between == "MatMul") inputs.emplace_back("w");
      if (between == "Reshape") inputs.emplace_back("same");
      at = "b" + std::to_string(i);
      g.node(between, inputs, {at});
    }
    const std::string next = "t" + std::to_string(i);
    g.node("Transpose", {at}, {next}, integers_attribute("perm", orders[i]));
    at = next;
  }
  g.node("MatMul", {at, "v"}, {"y"});
  return model(g.output("y", Element::kFloat, std::vector<std::int64_t>(rank, 4)).take());
}

// A batch norm behind a product, by way of an operator that moves values, or "".
inline Message norm_behind(const std::string& product, const std::string& way, int opset = 17) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 4}).initializer(identity_weights("w", 4));
  for (const char* name : {"scale", "bias", "mean", "var"}) g.weight(name, {1, 2, 3, 4}, {4});
  g.initializer(tensor<std::int64_t>("same", Element::kInt64, {2}, {4, 4}));
  g.node(product, {"x", "w"}, {"m"});
  std::string at = "m";
  if (!way.empty()) {
    std::vector<std::string> inputs{"m"};
    if (way == "Reshape") inputs.emplace_back("same");
    g.node(way, inputs, {"moved"});
    at = "moved";
  }
  g.node("BatchNormalization", {at, "scale", "bias", "mean", "var"}, {"n"});
  g.node("MatMul", {"n", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {4, 4}).take(), opset);
}

// The inputs of a layer norm's pieces beside x.
inline void norm_weights(GraphBuilder& g, int opset) {
  g.weight("two", {2}, {}).weight("epsilon", {1e-5F}, {});
  g.weight("gamma", {1, 2, 3, 4}, {4}).weight("beta", {1, 2, 3, 4}, {4});
  if (opset >= 18) g.initializer(tensor<std::int64_t>("last", Element::kInt64, {1}, {-1}));
}

inline void mean(GraphBuilder& g, const std::string& of, const std::string& to, int opset) {
  if (opset >= 18) {
    g.node("ReduceMean", {of, "last"}, {to});
  } else {
    g.node("ReduceMean", {of}, {to}, integers_attribute("axes", {-1}));
  }
}

// A layer norm in pieces, up to the sum "z".
inline void norm_pieces(GraphBuilder& g, const std::string& centred, int opset = 17) {
  mean(g, centred, "mu", opset);
  g.node("Sub", {centred, "mu"}, {"d"}).node("Pow", {"d", "two"}, {"square"});
  mean(g, "square", "variance", opset);
  g.node("Add", {"variance", "epsilon"}, {"sum"}).node("Sqrt", {"sum"}, {"deviation"});
  g.node("Div", {"d", "deviation"}, {"n"}).node("Mul", {"n", "gamma"}, {"scaled"});
  g.node("Add", {"scaled", "beta"}, {"z"});
}

// A layer norm in pieces behind a product. `shared`: something else reads what it reads.
// `followed`: by the beginning of another one.
inline Message norm_in_pieces(int opset = 17, const std::string& between = "", bool shared = false,
                              bool followed = false) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {2, 4}).initializer(identity_weights("w", 4));
  norm_weights(g, opset);
  g.node("MatMul", {"x", "w"}, {"m"});
  std::string centred = "m";
  if (!between.empty()) {
    std::vector<std::string> inputs{"m"};
    if (between == "Mul") inputs.emplace_back("one");
    if (between == "Expand") inputs.emplace_back("same");
    g.weight("one", {1}, {}).node(between, inputs, {"copy"});
    g.initializer(tensor<std::int64_t>("same", Element::kInt64, {2}, {1, 4}));
    centred = "copy";
  }
  norm_pieces(g, centred, opset);
  if (followed) {
    mean(g, "z", "centre", opset);
    g.node("Sub", {"z", "centre"}, {"y"});
  } else {
    g.node("Relu", {"z"}, {"y"});
  }
  if (shared) g.node("ReduceSum", {centred}, {"s"}).output("s", Element::kFloat, {1, 1});
  return model(g.output("y", Element::kFloat, {2, 4}).take(), opset);
}

// A layer norm in pieces of what a function makes, or that stands in a function.
inline Message norm_and_function(bool inside) {
  namespace f = field::function;
  GraphBuilder called, g;
  const auto constant = [&](const std::string& name, Message value) {
    called.node("Constant", {}, {name}, tensor_attribute("value", std::move(value)));
  };
  if (inside) {
    constant("two", floats("", {}, {2}));
    constant("epsilon", floats("", {}, {1e-5F}));
    constant("gamma", floats("", {4}, {1, 2, 3, 4}));
    constant("beta", floats("", {4}, {1, 2, 3, 4}));
    norm_pieces(called, "a");
  } else {
    constant("v", identity_weights("", 4));
    called.node("MatMul", {"a", "v"}, {"made"}).node("Identity", {"made"}, {"z"});
  }
  Message function;
  function.add(f::kName, std::string_view("f"));
  function.add(f::kDomain, std::string_view("own"));
  function.add(f::kInput, std::string_view("a"));
  function.add(f::kOutput, std::string_view("z"));
  Message body = called.take();
  for (Field& field : body.fields()) {
    if (field.number == field::graph::kNode) function.add(f::kNode, std::move(field.message));
  }
  function.add(f::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  g.input("x", Element::kFloat, {2, 4}).initializer(identity_weights("w", 4));
  g.node("MatMul", {"x", "w"}, {"m"}).in_domain("own").node("f", {"m"}, {"r"});
  if (inside) {
    g.node("Relu", {"r"}, {"y"});
  } else {
    norm_weights(g, 17);
    norm_pieces(g, "r");
    g.node("Relu", {"z"}, {"y"});
  }
  Message made = model(g.output("y", Element::kFloat, {2, 4}).take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "own")));
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  return made;
}

// A layer norm in pieces of what an If makes, or one in a body of it that reads from outside.
inline Message norm_and_body(bool inside) {
  GraphBuilder g, body, otherwise;
  g.input("x", Element::kFloat, {2, 4}).input("c", Element::kBool, {});
  g.initializer(identity_weights("w", 4)).initializer(identity_weights("v", 4));
  norm_weights(g, 17);
  g.node("MatMul", {"x", "w"}, {"m"});
  if (inside) {
    norm_pieces(body, "m");
    body.node("Relu", {"z"}, {"b"});
  } else {
    body.node("MatMul", {"x", "v"}, {"b"});
  }
  otherwise.node("Relu", {"m"}, {"e"});
  g.node("If", {"c"}, {"r"},
         body_attribute("then_branch", body.output("b", Element::kFloat, {2, 4}).take()),
         body_attribute("else_branch", otherwise.output("e", Element::kFloat, {2, 4}).take()));
  if (!inside) norm_pieces(g, "r");
  g.node("Relu", {inside ? "r" : "z"}, {"y"});
  return model(g.output("y", Element::kFloat, {2, 4}).take());
}

}  // namespace mezzo::convert
