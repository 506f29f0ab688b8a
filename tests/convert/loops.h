// Models whose loops carry a state: `s` becomes `s2` with every `row` of a product, and `last` is
// what is left of it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "builder.h"

namespace mezzo::convert {

enum class LoopKind : std::uint8_t { kScan, kLoop, kOldScan };

inline GraphBuilder body_of_state(LoopKind kind = LoopKind::kScan) {
  GraphBuilder body("body");
  if (kind == LoopKind::kLoop) {
    body.input("i", Element::kInt64, {}).input("going", Element::kBool, {}).input("s");
    body.node("Gather", {"rows", "i"}, {"row"}, attribute("axis", std::int64_t{0}));
    return body;
  }
  return std::move(body.input("s").input("row"));
}

using Additions = std::function<void(GraphBuilder&)>;

/// The loop over the rows of `x`, between two products. Constants that bodies may read: `w`,
/// `one`, `decay`, the integers `none` (0), `unit` (1), `two` (2) and `shape`, and `flags`.
inline Message loop_of_state(GraphBuilder& body, int opset = 17, const Additions& add = {},
                             LoopKind kind = LoopKind::kScan) {
  const auto integers = [](const std::string& name, const std::vector<std::int64_t>& values) {
    return tensor(name, Element::kInt64, {static_cast<std::int64_t>(values.size())}, values);
  };
  GraphBuilder g;
  g.input("x", Element::kFloat, {-1, 2, 2}).weight("w", {0.5F, -0.25F, 0.75F, 0.375F});
  g.node("MatMul", {"x", "w"}, {"rows"});
  g.weight("s0", {0, 0, 0, 0}).weight("one", {1}, {}).weight("decay", {0.999F}, {});
  for (const auto& [name, number] : {std::pair("none", 0), {"unit", 1}, {"two", 2}})
    g.initializer(integers(name, {number}));
  g.initializer(integers("shape", {2, 2}));
  g.initializer(tensor<std::int64_t>("places", Element::kInt64, {2, 2}, {0, 1, 1, 0}));
  g.initializer(tensor<std::uint8_t>("flags", Element::kBool, {2, 2}, {1, 0, 1, 1}));
  if (add) add(g);
  if (kind == LoopKind::kLoop) {
    body.node("Identity", {"going"}, {"goes_on"});
    Message made = body.take();
    made.add(field::graph::kOutput,
             std::make_unique<Message>(value_info("goes_on", Element::kBool, {})));
    made.add(field::graph::kOutput,
             std::make_unique<Message>(value_info("s2", Element::kFloat, {2, 2})));
    g.node("Shape", {"x"}, {"sizes"}).node("Gather", {"sizes", "none"}, {"turns"});
    g.node("Loop", {"turns", "", "s0"}, {"last"}, body_attribute("body", std::move(made)));
  } else {
    const bool is_old = kind == LoopKind::kOldScan;
    const std::vector<std::string> inputs = is_old ? std::vector<std::string>{"", "s0", "rows"}
                                                   : std::vector<std::string>{"s0", "rows"};
    g.node("Scan", inputs, {"last"}, body_attribute("body", body.output("s2").take()),
           attribute("num_scan_inputs", std::int64_t{1}));
  }
  g.node("MatMul", {"last", "w"}, {"y"}).output("y");
  return model(g.take(), opset);
}

inline Message one_state(const Additions& nodes) {
  GraphBuilder body = body_of_state();
  nodes(body);
  return loop_of_state(body);
}

inline Message sum_of_products(LoopKind kind) {
  GraphBuilder body = body_of_state(kind);
  body.node("MatMul", {"row", "w"}, {"p"}).node("Add", {"s", "p"}, {"s2"});
  return loop_of_state(body, kind == LoopKind::kOldScan ? 8 : 17, {}, kind);
}

inline Message decayed_sum() {
  return one_state([](GraphBuilder& body) {
    body.node("Mul", {"s", "decay"}, {"t"}).node("Add", {"t", "row"}, {"s2"});
  });
}

/// Two states, of which each may become the other's.
inline Message two_states(const std::vector<std::string>& states, const Additions& nodes) {
  GraphBuilder body("body");
  body.input(states[0]).input(states[1]).input("row");
  nodes(body);
  body.output(states[2]).output(states[3]);
  GraphBuilder g;
  g.input("x", Element::kFloat, {-1, 2, 2}).weight("w", {0.5F, -0.25F, 0.75F, 0.375F});
  g.node("MatMul", {"x", "w"}, {"rows"});
  g.weight("s0", {0, 0, 0, 0}).weight("one", {1}, {});
  g.weight("a1", {1.99F}, {}).weight("a2", {0.9905F}, {});
  g.node("Scan", {"s0", "s0", "rows"}, {"last", "other"}, body_attribute("body", body.take()),
         attribute("num_scan_inputs", std::int64_t{1}));
  return model(g.node("MatMul", {"last", "w"}, {"y"}).output("y").take());
}

inline Message running_mean() {
  return two_states({"m", "k", "m2", "k2"}, [](GraphBuilder& body) {
    body.node("Add", {"k", "one"}, {"k2"}).node("Sub", {"row", "m"}, {"d"});
    body.node("Div", {"d", "k2"}, {"q"}).node("Add", {"m", "q"}, {"m2"});
  });
}

/// A filter of second order: what it gave last, and before that.
inline Message resonator() {
  return two_states({"y1", "y2", "y0", "y1b"}, [](GraphBuilder& body) {
    body.node("Mul", {"y1", "a1"}, {"p"}).node("Mul", {"y2", "a2"}, {"q"});
    body.node("Add", {"row", "p"}, {"r"}).node("Sub", {"r", "q"}, {"y0"});
    body.node("Identity", {"y1"}, {"y1b"});
  });
}

/// z s + (1 - z) n, with z near one.
inline Message gated_state() {
  GraphBuilder body = body_of_state();
  body.node("MatMul", {"s", "w"}, {"uz"}).node("Add", {"uz", "row"}, {"az"});
  body.node("Add", {"az", "bias"}, {"ab"}).node("Sigmoid", {"ab"}, {"z"});
  body.node("MatMul", {"s", "w"}, {"un"}).node("Add", {"un", "row"}, {"an"});
  body.node("Tanh", {"an"}, {"n"}).node("Sub", {"one", "z"}, {"left"});
  body.node("Mul", {"z", "s"}, {"zs"}).node("Mul", {"left", "n"}, {"new"});
  body.node("Add", {"zs", "new"}, {"s2"});
  return loop_of_state(body, 17, [](GraphBuilder& g) { g.weight("bias", {7}, {}); });
}

inline Message sum_in_a_branch() {
  GraphBuilder then("then");
  then.node("Add", {"s", "row"}, {"a"}).output("a");
  GraphBuilder other("else");
  other.node("Identity", {"s"}, {"e"}).output("e");
  return one_state([&](GraphBuilder& body) {
    body.node("ReduceMax", {"row"}, {"top"}, attribute("keepdims", std::int64_t{0}));
    body.node("Greater", {"top", "one"}, {"is_large"});
    body.node("If", {"is_large"}, {"s2"}, body_attribute("then_branch", then.take()),
              body_attribute("else_branch", other.take()));
  });
}

inline Message sum_in_a_loop() {
  GraphBuilder inner("inner");
  inner.input("i", Element::kInt64, {}).input("c", Element::kBool, {}).input("n");
  inner.node("Identity", {"c"}, {"c2"}).node("Add", {"n", "row"}, {"n2"});
  inner.output("c2", Element::kBool, {}).output("n2");
  return one_state([&](GraphBuilder& body) {
    body.node("Loop", {"two", "", "s"}, {"s2"}, body_attribute("body", inner.take()));
  });
}

inline Message sum_in_a_function() {
  Message function;
  function.add(field::function::kName, std::string_view("Sum2"));
  function.add(field::function::kInput, std::string_view("a"));
  function.add(field::function::kInput, std::string_view("b"));
  function.add(field::function::kOutput, std::string_view("r"));
  Message graph = GraphBuilder().node("Add", {"a", "b"}, {"r"}).take();
  for (Field& field : graph.fields()) {
    if (field.number == field::graph::kNode)
      function.add(field::function::kNode, std::move(field.message));
  }
  function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  function.add(field::function::kDomain, std::string_view("my"));
  Message made = one_state([](GraphBuilder& body) {
    body.in_domain("my").node("Sum2", {"s", "row"}, {"s2"});
  });
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  return made;
}

}  // namespace mezzo::convert
