// Faults that the strict checker finds in models.
#include "convert/graph/check.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "convert/onnx/document.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> faults(const Message& made) {
  Document document(bytes_of(made));
  const Graph graph(document);
  std::vector<std::string> texts;
  for (const Finding& finding : check_graph(graph)) texts.push_back(finding.what);
  return texts;
}

// Adds every row to a state.
Message sums(Element declared, Element given) {
  GraphBuilder body("body");
  body.input("s", declared, {2}).input("row", Element::kFloat, {2});
  body.node("Cast", {"s"}, {"f"}, attribute("to", 1)).node("Add", {"f", "row"}, {"sum"});
  body.node("Cast", {"sum"}, {"next"}, attribute("to", static_cast<std::int64_t>(given)));
  GraphBuilder g;
  g.input("x").weight("zero", {0, 0}, {2});
  g.node("Scan", {"zero", "x"}, {"y"}, attribute("num_scan_inputs", 1),
         body_attribute("body", body.output("next", given, {2}).take()));
  return model(g.output("y", given, {2}).take());
}

TEST(Checker, ComparesWhatABodyDeclaresWithWhatItIsGiven) {
  EXPECT_THAT(faults(sums(Element::kFloat, Element::kFloat)), IsEmpty());
  EXPECT_THAT(faults(sums(Element::kFloat16, Element::kFloat)),
              ElementsAre(HasSubstr("input 's' in node making 'y' (Scan)/body is declared "
                                    "tensor(float16) and is tensor(float32)")));
}

TEST(Checker, ComparesTheStatesOfAScan) {
  EXPECT_THAT(faults(sums(Element::kFloat, Element::kFloat16)),
              ElementsAre(HasSubstr("what output 0 of the body becomes is tensor(float16) on one "
                                    "side and tensor(float32) on the other")));
}

TEST(Checker, WantsEveryValueMadeBeforeItIsRead) {
  GraphBuilder then("then");
  then.node("Neg", {"a"}, {"t"}).output("t");
  GraphBuilder other("else");
  other.node("Abs", {"b"}, {"e"}).node("Abs", {"x"}, {"b"}).output("e");
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {});
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.node("Relu", {"x"}, {"a"}).output("y");
  EXPECT_THAT(faults(model(g.take())),
              ElementsAre("nodes of the main graph read what nodes behind them make",
                          "nodes of node making 'y' (If)/else_branch read what nodes behind them "
                          "make"));
}

TEST(Checker, WantsBodiesToMakeWhatTheyGive) {
  GraphBuilder other("else");
  other.node("Abs", {"x"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {});
  g.named("n").node("If", {"flag"}, {"y"},
                    body_attribute("then_branch", GraphBuilder("then").output("x").take()),
                    body_attribute("else_branch", other.take()));
  EXPECT_THAT(faults(model(g.output("y").take())),
              ElementsAre("output 'x' of node 'n' (If)/then_branch is a value of a scope around "
                          "it; a node must hand it on"));
}

TEST(Checker, CountsWhatAFunctionIsGiven) {
  namespace f = field::function;
  Message function;
  function.add(f::kName, std::string_view("same"));
  function.add(f::kDomain, std::string_view("f"));
  function.add(f::kInput, std::string_view("a"));
  function.add(f::kOutput, std::string_view("a"));
  function.add(f::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  GraphBuilder g;
  g.input("x").in_domain("f").node("same", {"x", "x"}, {"y", "z"}).output("y");
  Message made = model(g.take());
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  EXPECT_THAT(faults(made), ElementsAre(HasSubstr("has 2 inputs; the function takes 1"),
                                        HasSubstr("has 2 outputs; the function gives 1")));
}

}  // namespace
}  // namespace mezzo::convert
