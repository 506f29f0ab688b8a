// Casts around operators that do not take the type of an operand.
#include "convert/make/admit_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mezzo::convert {
namespace {

using testing::ElementsAre;

MadeNode node_of(std::string op, std::vector<std::string> inputs,
                 std::vector<std::string> outputs) {
  MadeNode node;
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

MadeModel model_of(std::vector<MadeNode> nodes, std::int64_t opset = 18) {
  MadeModel model;
  model.opsets[""] = opset;
  model.graph.nodes = std::move(nodes);
  return model;
}

/// "Cast(x) -> x_int32 to 6".
std::string text_of(const MadeNode& node) {
  std::string text = node.op + "(";
  for (const std::string& input : node.inputs) text += (text.back() == '(' ? "" : ",") + input;
  text += ") ->";
  for (const std::string& output : node.outputs) text += " " + output;
  const auto to = node.attributes.find("to");
  return to == node.attributes.end() ? text
                                     : text + " to " + std::to_string(std::get<0>(to->second));
}

std::vector<std::string> texts_of(const MadeGraph& graph) {
  std::vector<std::string> texts;
  for (const MadeNode& node : graph.nodes) texts.push_back(text_of(node));
  return texts;
}

TEST(AdmitTypes, LeavesWhatTheStandardTakes) {
  MadeModel model = model_of({node_of("Max", {"a", "b"}, {"c"}), node_of("IsInf", {"x"}, {"y"})});
  EXPECT_EQ(admit_types(model, {{"a", Element::kInt64}, {"x", Element::kDouble}}), 0U);
  EXPECT_THAT(texts_of(model.graph), ElementsAre("Max(a,b) -> c", "IsInf(x) -> y"));
}

TEST(AdmitTypes, ResultsOfTheSameVariableAreCastBackAndKeepTheirNames) {
  MadeModel model = model_of({node_of("TopK", {"x", "k"}, {"values", "places"})});
  EXPECT_EQ(admit_types(model, {{"x", Element::kBool}, {"k", Element::kInt64}}), 1U);
  EXPECT_THAT(texts_of(model.graph),
              ElementsAre("Cast(x) -> x_int32 to 6", "TopK(x_int32,k) -> values_int32 places",
                          "Cast(values_int32) -> values to 9"));
}

TEST(AdmitTypes, ResultsOfAnotherTypeAreLeft) {
  MadeModel model = model_of({node_of("IsNaN", {"x"}, {"y"})});
  EXPECT_EQ(admit_types(model, {{"x", Element::kInt64}}), 1U);
  EXPECT_THAT(texts_of(model.graph),
              ElementsAre("Cast(x) -> x_float64 to 11", "IsNaN(x_float64) -> y"));
}

TEST(AdmitTypes, AnOperandIsCastOnceForAllOfItsReaders) {
  MadeModel model =
      model_of({node_of("Max", {"a", "a"}, {"b"}), node_of("Min", {"a", "c"}, {"d"})});
  const TypesOfValues types{{"a", Element::kBool}, {"c", Element::kBool}};
  EXPECT_EQ(admit_types(model, types), 2U);
  EXPECT_THAT(texts_of(model.graph),
              ElementsAre("Cast(a) -> a_int32 to 6", "Max(a_int32,a_int32) -> b_int32",
                          "Cast(b_int32) -> b to 9", "Cast(c) -> c_int32 to 6",
                          "Min(a_int32,c_int32) -> d_int32", "Cast(d_int32) -> d to 9"));
}

TEST(AdmitTypes, WhatAnOpsetTakesIsAskedOfThatOpset) {
  MadeModel old = model_of({node_of("ReduceMax", {"x"}, {"y"})}, 18);
  EXPECT_EQ(admit_types(old, {{"x", Element::kBool}}), 1U);
  MadeModel recent = model_of({node_of("ReduceMax", {"x"}, {"y"})}, 20);
  EXPECT_EQ(admit_types(recent, {{"x", Element::kBool}}), 0U);
}

TEST(AdmitTypes, NamesThatAreTakenAreNotTakenAgain) {
  MadeModel model =
      model_of({node_of("Neg", {"z"}, {"x_float64"}), node_of("IsNaN", {"x"}, {"y"})});
  admit_types(model, {{"x", Element::kInt64}});
  EXPECT_EQ(text_of(model.graph.nodes[1]), "Cast(x) -> x_float64_1 to 11");
}

TEST(AdmitTypes, NodesOfBodiesAreCastWhereTheyStand) {
  auto body = std::make_shared<MadeGraph>();
  body->nodes = {node_of("Sign", {"x"}, {"inner"})};
  MadeNode branch = node_of("If", {"condition"}, {"y"});
  branch.attributes["then_branch"] = body;
  MadeModel model = model_of({branch});
  EXPECT_EQ(admit_types(model, {{"x", Element::kBool}}), 1U);
  EXPECT_EQ(model.graph.nodes.size(), 1U);
  EXPECT_THAT(texts_of(*body),
              ElementsAre("Cast(x) -> x_int32 to 6", "Sign(x_int32) -> inner_int32",
                          "Cast(inner_int32) -> inner to 9"));
}

TEST(AdmitTypes, OperatorsThatNothingIsKnownOfAreLeft) {
  MadeNode custom = node_of("Max", {"a"}, {"b"});
  custom.domain = "my.domain";
  MadeModel model = model_of({custom, node_of("Sign", {"unknown"}, {"y"})});
  EXPECT_EQ(admit_types(model, {{"a", Element::kBool}}), 0U);
}

}  // namespace
}  // namespace mezzo::convert
