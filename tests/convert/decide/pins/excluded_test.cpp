// Regions that stay float32, and choices of the caller.
#include <gmock/gmock.h>

#include <set>
#include <stdexcept>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class ExcludedRegions : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("excluded_regions");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  // The outputs of all products that are low.
  std::set<std::string> low_products(Message graph) {
    save(folder_ / "in.onnx", model(std::move(graph)));
    result_ = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
    std::set<std::string> low;
    for (const Decision& decision : result_.plan.decisions) {
      if (decision.op == "MatMul" && decision.low)
        low.insert(decision.key.substr(decision.key.rfind('/') + 1));
    }
    return low;
  }

  // x - a - b - c - y, and a beside way: a - d - y.
  static Message diamond() {
    GraphBuilder g;
    g.input("x").weight("w");
    g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"});
    g.node("MatMul", {"b", "w"}, {"c"}).node("MatMul", {"a", "w"}, {"d"});
    g.node("MatMul", {"c", "d"}, {"y"}).output("y");
    return g.take();
  }

  // x - a, then in both branches a - t - e, then r - y.
  static Message branched() {
    GraphBuilder then_branch("then");
    then_branch.node("MatMul", {"a", "w"}, {"t"}).node("MatMul", {"t", "w"}, {"u"});
    then_branch.node("MatMul", {"w", "w"}, {"aside"}).node("Add", {"u", "aside"}, {"v"});
    GraphBuilder else_branch("else");
    else_branch.node("MatMul", {"a", "w"}, {"e"});
    GraphBuilder g;
    g.input("x").input("flag", Element::kBool, {}).weight("w");
    g.node("MatMul", {"x", "w"}, {"a"});
    g.node("If", {"flag"}, {"r"}, body_attribute("then_branch", then_branch.output("v").take()),
           body_attribute("else_branch", else_branch.output("e").take()));
    g.node("MatMul", {"r", "w"}, {"y"}).output("y");
    return g.take();
  }

  fs::path folder_;
  Options options_;
  Result result_;
};

TEST_F(ExcludedRegions, AreWhatLiesOnAWayBetweenTwoValues) {
  options_.excluded_regions = {{"a", "c"}};
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre("a", "d", "y"));
  options_.excluded_regions = {{"a", "b"}, {"d", "y"}};
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre("a", "c", "d"));
  options_.excluded_regions = {{"x", "y"}};
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre());
}

TEST_F(ExcludedRegions, GoThroughBodies) {
  options_.excluded_regions = {{"x", "y"}};
  EXPECT_THAT(low_products(branched()), UnorderedElementsAre("aside"));
  options_.excluded_regions = {{"a", "u"}};  // from outside into a body
  EXPECT_THAT(low_products(branched()), UnorderedElementsAre("a", "aside", "e", "y"));
  options_.excluded_regions = {{"t", "y"}};  // and out of one
  EXPECT_THAT(low_products(branched()), UnorderedElementsAre("a", "t", "aside", "e"));
}

// A loop with two states that do not meet: p grows by products with a, q by those with b.
Message two_states() {
  GraphBuilder body("body");
  body.input("i", Element::kInt64, {}).input("go", Element::kBool, {}).input("p0").input("q0");
  body.node("Identity", {"go"}, {"on"}).output("on", Element::kBool, {});
  body.node("MatMul", {"p0", "w"}, {"p1"}).node("MatMul", {"q0", "w"}, {"q1"});
  GraphBuilder g;
  g.input("turns", Element::kInt64, {}).input("flag", Element::kBool, {});
  g.input("a").input("b").weight("w");
  g.node("Loop", {"turns", "flag", "a", "b"}, {"p", "q"},
         body_attribute("body", body.output("p1").output("q1").take()));
  g.node("MatMul", {"p", "w"}, {"y"}).node("MatMul", {"q", "w"}, {"z"});
  return g.output("y").output("z").take();
}

TEST_F(ExcludedRegions, ComeOutOfABodyWhereTheyWentIn) {
  options_.excluded_regions = {{"a", "y"}};
  EXPECT_THAT(low_products(two_states()), UnorderedElementsAre("q1", "z"));
  options_.excluded_regions = {{"q1", "z"}};
  EXPECT_THAT(low_products(two_states()), UnorderedElementsAre("p1", "y"));
  options_.excluded_regions = {{"a", "z"}};
  EXPECT_THAT(low_products(two_states()), UnorderedElementsAre("p1", "q1", "y", "z"));
}

TEST_F(ExcludedRegions, ThatNoWayLeadsThroughAreWarnedOf) {
  options_.excluded_regions = {{"c", "a"}};
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre("a", "b", "c", "d", "y"));
  EXPECT_THAT(result_.report.warnings,
              Contains(HasSubstr("excluded region from 'c' to 'a': no way leads there")));
}

TEST_F(ExcludedRegions, ACallerMayChooseForEveryNode) {
  options_.choose = [](const Decision& asked) -> std::optional<bool> {
    EXPECT_EQ(asked.op, "MatMul");
    EXPECT_EQ(asked.variable, "T");
    if (asked.key == "b") return false;
    return std::nullopt;
  };
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre("a", "c", "d", "y"));
  options_.choose = [](const Decision& asked) { return asked.key == "b"; };
  EXPECT_THAT(low_products(diamond()), UnorderedElementsAre("b"));
  EXPECT_THAT(result_.plan.decisions[0].why, HasSubstr("the caller chooses so"));
}

TEST_F(ExcludedRegions, WhatAChoiceThrowsEndsTheConversion) {
  options_.choose = [](const Decision&) -> std::optional<bool> { throw std::runtime_error("no"); };
  EXPECT_THROW(low_products(diamond()), std::runtime_error);
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx"));
}

}  // namespace
}  // namespace mezzo::convert
