// Operators that no table knows, and what stands around them.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "builder.h"
#include "convert/graph/check.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

class UnknownTypes : public testing::Test {
 protected:
  void SetUp() override { folder_ = scratch_folder("unknown_types"); }

  // How many products are low; every value of the result that `types` asks for has its type.
  std::int64_t low_products(Message graph, const std::map<std::string, std::string>& types = {},
                            int opset = 17) {
    Message made = model(std::move(graph), opset);
    made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "my")));
    save(folder_ / "in.onnx", made);
    Options options;
    options.cast_optional_params = true;
    options.verify = "none";
    const Result result = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options);
    Document document(folder_ / "out.onnx");
    const Graph converted(document);
    EXPECT_THAT(check_graph(converted), IsEmpty());
    for (const auto& [name, type] : types) {
      const auto found = converted.scope(0).names.find(name);
      if (found == converted.scope(0).names.end()) {
        ADD_FAILURE() << name << " is not there";
        continue;
      }
      EXPECT_EQ(name_of(converted.value(found->second).type.element), type) << name;
    }
    return result.report.heavy_low_nodes;
  }

  fs::path folder_;
};

TEST_F(UnknownTypes, OfOtherDomainsStayFloat) {
  GraphBuilder g;
  g.input("x").weight("w").in_domain("my").node("Secret", {"x"}, {"s"});
  g.node("MatMul", {"x", "w"}, {"y"});
  EXPECT_EQ(low_products(g.output("y").take(), {{"x__f16", "float16"}}), 1);
}

// The output of an unknown operator has the type that stands beside it, however far behind it.
TEST_F(UnknownTypes, FollowFromTheReaders) {
  GraphBuilder g;
  g.input("x").weight("w").in_domain("my").node("Secret", {"x"}, {"s", "k"});
  g.node("MatMul", {"s", "k"}, {"a"}).node("Relu", {"a"}, {"b"}).node("MatMul", {"b", "w"}, {"c"});
  g.in_domain("my").node("Secret", {"c"}, {"y"}).output("y");
  EXPECT_EQ(low_products(g.take(), {{"s__f16", "float16"}, {"a", "float16"}}), 2);
}

// Between two unknown operators nothing is known; the file may tell.
TEST_F(UnknownTypes, ThatFollowFromNothingKeepTheirReadersFloat) {
  for (const bool is_declared : {false, true}) {
    GraphBuilder g;
    g.input("x").input("flag", Element::kBool, {}).weight("w");
    g.in_domain("my").node("Secret", {"x"}, {"s", "k"});
    if (is_declared) {
      for (const char* name : {"s", "k"})
        g.add(field::graph::kValueInfo, value_info(name, Element::kFloat, {2, 2}));
    }
    g.node("MatMul", {"s", "k"}, {"p"});
    GraphBuilder then_branch("then");
    then_branch.node("MatMul", {"x", "w"}, {"t"}).output("t");
    GraphBuilder else_branch("else");
    Message untyped;
    untyped.add(field::value_info::kName, std::string_view("e"));
    else_branch.node("Identity", {"p"}, {"e"}).add(field::graph::kOutput, std::move(untyped));
    g.node("If", {"flag"}, {"i"}, body_attribute("then_branch", then_branch.take()),
           body_attribute("else_branch", else_branch.take()));
    g.in_domain("my").node("Secret", {"i"}, {"y"}).output("y");
    EXPECT_EQ(low_products(g.take(), {{"i", is_declared ? "float16" : "float32"}}),
              is_declared ? 2 : 1);
  }
}

TEST_F(UnknownTypes, BitsAreThoseOfFloat) {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"m"});
  g.node("BitCast", {"m"}, {"y"}, attribute("to", std::int64_t{6}));
  g.output("y", Element::kInt32);
  EXPECT_EQ(low_products(g.take(), {{"m", "float16"}, {"m__f32", "float32"}}, 26), 1);
}

}  // namespace
}  // namespace mezzo::convert
