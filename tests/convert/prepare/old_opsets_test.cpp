// Operators that changed their form up to opset 10, and a mode that opset 13 does without.
#include "convert/prepare/old_opsets.h"

#include <gmock/gmock.h>

#include "convert/graph/check.h"
#include "convert/prepare/opset.h"
#include "corpus.h"
#include "decision_on.h"
#include "old_models.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Why the model cannot be raised; empty, and the result is valid, where it can.
std::string why_not(const Message& made, int target, std::vector<std::string>* ops = nullptr) {
  Document document(bytes_of(made));
  const std::string why = raise_opset(document, target);
  if (!why.empty()) return why;
  Document raised(bytes_of(document.model()));
  const Graph graph(raised);
  for (const Finding& finding : check_graph(graph)) ADD_FAILURE() << finding.what;
  if (ops != nullptr) {
    for (const Node& node : graph.nodes) ops->emplace_back(node.op);
  }
  return "";
}

TEST(OldOpsets, AreRaisedToEveryLaterOne) {
  for (const int target : {7, 9, 10, 12, 13, 18, 22}) {
    for (OldModel& old : old_models()) {
      if (old.opset > target) continue;
      EXPECT_EQ(why_not(model(std::move(old.graph), old.opset, 4), target), "")
          << old.name << " to " << target;
    }
  }
}

TEST(OldOpsets, InBodiesToo) {
  for (OldModel& old : old_models()) {
    GraphBuilder other("else");
    other.weight("zero", old.y, {1, 2, 2, static_cast<std::int64_t>(old.y.size()) / 4});
    other.node("Identity", {"zero"}, {"e"}).output("e", Element::kFloat, {});
    // The body's own input cannot be: it captures the model's.
    Message body;
    for (Field& field : old.graph.fields()) {
      if (field.number != field::graph::kInput) body.add(field.number, std::move(field.message));
    }
    GraphBuilder g;
    g.input("x", Element::kFloat, old.dims).input("flag", Element::kBool, {});
    g.node("If", {"flag"}, {"z"}, body_attribute("then_branch", std::move(body)),
           body_attribute("else_branch", other.take()));
    EXPECT_EQ(why_not(model(g.output("z", Element::kFloat, {}).take(), old.opset, 4), 13), "")
        << old.name;
  }
}

// The nodes of a graph as a function of x, called on two inputs.
Message called(Message graph, int opset, const std::vector<std::int64_t>& second) {
  Message function;
  function.add(field::function::kName, std::string_view("Old"));
  function.add(field::function::kInput, std::string_view("x"));
  function.add(field::function::kInput, std::string_view("slope"));
  function.add(field::function::kOutput, std::string_view("y"));
  for (Field& field : graph.fields()) {
    if (field.number == field::graph::kNode)
      function.add(field::function::kNode, std::move(field.message));
  }
  function.add(field::function::kOpsetImport, std::make_unique<Message>(opset_import(opset)));
  function.add(field::function::kDomain, std::string_view("my"));
  GraphBuilder g;
  g.input("a", Element::kFloat, {1, 2, 2, 2}).input("b", Element::kFloat, second);
  g.weight("s", {1, 2}, {2});
  g.in_domain("my").node("Old", {"a", "s"}, {"c"}).in_domain("my").node("Old", {"b", "s"}, {"d"});
  g.output("c", Element::kFloat, {1, 2, 2, 2}).output("d", Element::kFloat, second);
  Message m = model(g.take(), 15);
  m.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
  m.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  return m;
}

TEST(OldOpsets, InFunctionsWhereAllCallsAgree) {
  const auto slope = [] { return GraphBuilder().node("PRelu", {"x", "slope"}, {"y"}).take(); };
  EXPECT_EQ(why_not(called(slope(), 6, {1, 2, 2, 2}), 16), "");
  EXPECT_THAT(why_not(called(slope(), 6, {1, 2, 2}), 16),
              HasSubstr("in function 'Old': PRelu has one slope per channel, and the rank of 'x' "
                        "is not known (opset 7)"));
}

TEST(OldOpsets, WhatIsNotKnownIsRefusedWithWhatItIs) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, 2, 2}).weight("b", {1, 2}, {2});
  g.in_domain("acme").node("Blur", {"x"}, {"c"});
  g.node("Add", {"c", "b"}, {"y"}, attribute("broadcast", 1), attribute("axis", 1));
  EXPECT_EQ(why_not(model(g.output("y", Element::kFloat, {1, 2, 2, 2}).take(), 6, 4), 7),
            "Add aligns its operands by an axis, and the rank of 'c' is not known (opset 7)");
}

// The first output of a Split of opset 1 by what the input says.
Message splitting(bool is_constant, std::vector<float> sizes = {1, 1}) {
  GraphBuilder g;
  g.input("x");
  is_constant ? g.weight("sizes", std::move(sizes), {2}) : g.input("sizes", Element::kFloat, {2});
  g.node("Split", {"x", "sizes"}, {"y", "z"}, attribute("axis", 1));
  return model(g.output("y", Element::kFloat, {2, 1}).take(), 1, 4);
}

TEST(OldOpsets, SizesOfASplitThatNobodyKnowsWaitForTheInputThatTakesThem) {
  std::vector<std::string> ops;
  EXPECT_EQ(why_not(splitting(true), 12, &ops), "");
  EXPECT_THAT(ops, ElementsAre("Split"));
  EXPECT_EQ(why_not(splitting(false), 12),
            "Split takes its sizes from an input that is no constant (opset 2)");
  EXPECT_THAT(why_not(splitting(true, {0.5F, 1.5F}), 12), HasSubstr("that is no constant"));
  ops.clear();
  EXPECT_EQ(why_not(splitting(false), 18, &ops), "");
  EXPECT_THAT(ops, ElementsAre("Cast", "Split"));
}

TEST(OldOpsets, ABatchedScanThatKnowsLengthsIsRefused) {
  GraphBuilder body("body");
  body.input("s").input("e").node("Add", {"s", "e"}, {"t"}).output("t");
  GraphBuilder g;
  g.input("n", Element::kInt64, {1}).input("x", Element::kFloat, {1, 2, 2});
  g.input("v", Element::kFloat, {1, 3, 2, 2});
  g.node("Scan", {"n", "x", "v"}, {"y"}, body_attribute("body", body.take()),
         attribute("num_scan_inputs", 1));
  EXPECT_EQ(why_not(model(g.output("y", Element::kFloat, {1, 2, 2}).take(), 8, 4), 9),
            "Scan is told how long each sequence is (opset 9)");
}

// x -> Dropout with a mask that is read, or is not.
Message dropping(int opset, bool is_read, std::int64_t is_test = 1) {
  GraphBuilder g;
  g.input("x", Element::kDouble);
  if (opset < 7) {
    g.node("Dropout", {"x"}, {"y", "mask"}, attribute("is_test", is_test));
  } else {
    g.node("Dropout", {"x"}, {"y", "mask"});
  }
  if (is_read) g.node("Neg", {"mask"}, {"z"}).output("z", Element::kDouble);
  return model(g.output("y", Element::kDouble).take(), opset, 4);
}

TEST(OldOpsets, TheMaskOfDropoutIsCastBackOrGoes) {
  for (const int opset : {6, 7, 9}) {
    for (const int target : {10, 12, 13, 22}) {
      std::vector<std::string> ops;
      EXPECT_EQ(why_not(dropping(opset, false), target, &ops), "");
      EXPECT_THAT(ops, ElementsAre("Dropout"));
      ops.clear();
      EXPECT_EQ(why_not(dropping(opset, true), target, &ops), "");
      EXPECT_THAT(ops, ElementsAre("Dropout", "Cast", "Neg"));
    }
  }
}

TEST(OldOpsets, ADropoutThatTrainsWaitsForTheInputThatSaysSo) {
  for (const int target : {7, 9, 11})
    EXPECT_EQ(why_not(dropping(6, true, 0), target), "Dropout trains (opset 7)");
  for (const int target : {12, 13}) {
    Document document(bytes_of(dropping(6, true, 0)));
    EXPECT_EQ(raise_opset(document, target), "");
    Document raised(bytes_of(document.model()));
    const Graph graph(raised);
    EXPECT_THAT(check_graph(graph), IsEmpty());
    const Node& dropout = *std::ranges::find(graph.nodes, "Dropout", &Node::op);
    ASSERT_EQ(dropout.inputs.size(), 3U);
    EXPECT_THAT(array_of(raised, *graph.constant(dropout.inputs[1])).values(), ElementsAre(0.5));
    EXPECT_THAT(array_of(raised, *graph.constant(dropout.inputs[2])).values(), ElementsAre(1));
  }
}

// The standard says of opset 1 what it says of later ones where nothing is to be before the reset.
TEST(OldOpsets, ARecurrentLayerNeedsNothing) {
  const std::vector<float> ones(12, 1);
  GraphBuilder g;
  g.input("x", Element::kFloat, {3, 1, 2})
      .weight("w", ones, {1, 6, 2})
      .weight("r", ones, {1, 6, 2});
  g.weight("b", ones, {1, 12});
  g.node("GRU", {"x", "w", "r", "b"}, {"y"}, attribute("hidden_size", 2));
  EXPECT_EQ(why_not(model(g.output("y", Element::kFloat, {3, 1, 1, 2}).take(), 1, 4), 7), "");
}

}  // namespace
}  // namespace mezzo::convert
