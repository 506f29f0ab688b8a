// Functions of a model: every call is a copy, and copies may be many.
#include "convert/onnx/functions.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "convert/graph/graph.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

void add_node(Message& scope, std::uint32_t number, const std::string& op, const std::string& in,
              const std::string& out, const std::string& domain = "f") {
  auto node = std::make_unique<Message>();
  node->add(field::node::kInput, kept(in));
  node->add(field::node::kOutput, kept(out));
  node->add(field::node::kOpType, kept(op));
  node->add(field::node::kDomain, kept(domain));
  scope.add(number, std::move(node));
}

// A function that applies another one twice.
Message twice(const std::string& name, const std::string& called, const std::string& domain) {
  namespace f = field::function;
  Message function;
  function.add(f::kName, kept(name));
  function.add(f::kDomain, std::string_view("f"));
  function.add(f::kInput, std::string_view("a"));
  function.add(f::kOutput, std::string_view("c"));
  add_node(function, f::kNode, called, "a", "b", domain);
  add_node(function, f::kNode, called, "b", "c", domain);
  function.add(f::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  function.add(f::kOpsetImport, std::make_unique<Message>(opset_import(1, "f")));
  return function;
}

// f0 applies Relu twice, every other one the one before twice.
Message chain(int length) {
  GraphBuilder g;
  g.input("x").in_domain("f").node("f" + std::to_string(length - 1), {"x"}, {"y"}).output("y");
  Message made = model(g.take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "f")));
  for (int i = 0; i < length; ++i) {
    const std::string called = i == 0 ? "Relu" : "f" + std::to_string(i - 1);
    made.add(field::model::kFunctions,
             std::make_unique<Message>(twice("f" + std::to_string(i), called, i == 0 ? "" : "f")));
  }
  return made;
}

void expect_refused(const Message& made, std::string_view why) {
  try {
    Document document(bytes_of(made));
    const Graph graph(document);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::string(why)));
  }
}

TEST(ModelFunctions, AreThereOncePerCall) {
  Document document(bytes_of(chain(4)));
  const Graph graph(document);
  EXPECT_EQ(graph.scopes.size(), 1U + 1 + 2 + 4 + 8);
  const Scope& last = graph.scopes.back();
  EXPECT_EQ(graph.path_of(1), "node making 'y' (f3)/function");
  EXPECT_EQ(graph.key_of(graph.node(last.nodes.back())),
            "y/function/c/function/c/function/c/function/c");
}

TEST(ModelFunctions, AFewThatCallEachOtherTwiceAreMoreThanMemoryHolds) {
  expect_refused(chain(20), "calls functions more than 250000 times");
  expect_refused(chain(60), "nodes");
  expect_refused(chain(90), "nested deeper than 64");
}

TEST(ModelFunctions, ThatCallThemselvesAreRefused) {
  GraphBuilder g;
  g.input("x").in_domain("f").node("f", {"x"}, {"y"}).output("y");
  Message made = model(g.take());
  made.add(field::model::kFunctions, std::make_unique<Message>(twice("f", "f", "f")));
  expect_refused(made, "function 'f' calls itself");
}

// Few nodes and calls, but very many values.
TEST(ModelFunctions, WithManyValuesAreCountedOncePerCall) {
  namespace f = field::function;
  constexpr int kMany = 20'000;
  Message wide;
  wide.add(f::kName, std::string_view("wide"));
  wide.add(f::kDomain, std::string_view("f"));
  wide.add(f::kInput, std::string_view("a"));
  wide.add(f::kOutput, std::string_view("o0"));
  auto split = std::make_unique<Message>();
  split->add(field::node::kInput, std::string_view("a"));
  for (int i = 0; i < kMany; ++i) split->add(field::node::kOutput, kept("o" + std::to_string(i)));
  split->add(field::node::kOpType, std::string_view("Split"));
  wide.add(f::kNode, std::move(split));
  wide.add(f::kOpsetImport, std::make_unique<Message>(opset_import(17)));
  GraphBuilder g;
  g.input("x");
  for (int i = 0; i < kMany; ++i) g.in_domain("f").node("wide", {"x"}, {"y" + std::to_string(i)});
  Message made = model(g.output("y0").take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "f")));
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(wide)));
  expect_refused(made, "more than 50000000 values");
}

}  // namespace
}  // namespace mezzo::convert
