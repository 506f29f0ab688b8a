// States of loops: those that add to themselves stay float32, those that begin anew go low.
#include <gmock/gmock.h>

#include "decision_on.h"
#include "loops.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kBothTypes{"float16", "bfloat16"};

void expect_float_in_body(const Message& made, const std::vector<std::string>& nodes,
                          const std::vector<std::string>& dtypes = kBothTypes) {
  for (const std::string& dtype : dtypes) {
    for (const std::string& node : nodes) {
      const Decision decision = decision_on(made, "last/body/" + node, {}, dtype);
      EXPECT_FALSE(decision.low) << node << ' ' << dtype;
      EXPECT_THAT(decision.why, HasSubstr("adds to itself")) << node << ' ' << dtype;
    }
  }
}

void expect_low_in_body(const Message& made, const std::vector<std::string>& nodes,
                        const std::vector<std::string>& dtypes = kBothTypes) {
  for (const std::string& dtype : dtypes) {
    for (const std::string& node : nodes)
      EXPECT_TRUE(decision_on(made, "last/body/" + node, {}, dtype).low) << node << ' ' << dtype;
  }
}

TEST(States, ThatAddUpAreFloatAndTheProductsThatTheyAddGoLow) {
  for (const LoopKind kind : {LoopKind::kScan, LoopKind::kLoop}) {
    expect_float_in_body(sum_of_products(kind), {"s2"});
    expect_low_in_body(sum_of_products(kind), {"p"});
  }
  // Opset 8 has no bfloat16.
  expect_float_in_body(sum_of_products(LoopKind::kOldScan), {"s2"}, {"float16"});
  expect_low_in_body(sum_of_products(LoopKind::kOldScan), {"p"}, {"float16"});
}

TEST(States, ThatAreMeansCountsAndDecayedSumsAreFloat) {
  expect_float_in_body(running_mean(), {"k2", "d", "q", "m2"});
  expect_float_in_body(decayed_sum(), {"t", "s2"});
  expect_float_in_body(one_state([](GraphBuilder& body) {
                         body.node("Sub", {"s", "row"}, {"s2"});
                       }),
                       {"s2"});
}

TEST(States, ThatPassWhatOnlyMovesAreFloatIfTheyAddUpAsWell) {
  const auto through = [](const char* op, const std::vector<std::string>& more) {
    return one_state([&](GraphBuilder& body) {
      std::vector<std::string> inputs = more;
      inputs.insert(inputs.begin() + (std::string(op) == "Where" ? 1 : 0), "a");
      body.node("Add", {"s", "row"}, {"a"}).node(op, inputs, {"s2"});
    });
  };
  expect_float_in_body(through("Identity", {}), {"a", "s2"});
  expect_float_in_body(through("Relu", {}), {"a", "s2"});
  expect_float_in_body(through("Where", {"flags", "s"}), {"a", "s2"});
}

TEST(States, ThatAreSummedWithSomethingJoinedAreFloat) {
  const Message made = one_state([](GraphBuilder& body) {
    body.node("Concat", {"s", "row"}, {"c"}, attribute("axis", std::int64_t{0}));
    body.node("ReduceMean", {"c"}, {"m"}, integers_attribute("axes", {0}));
    body.node("Expand", {"m", "shape"}, {"s2"});
  });
  expect_float_in_body(made, {"c", "m", "s2"});
}

TEST(States, ThatAProductAddsToAreFloat) {
  const Message made = one_state([](GraphBuilder& body) {
    body.node("Gemm", {"row", "w", "s"}, {"s2"});
  });
  expect_float_in_body(made, {"s2"});
}

TEST(States, ThatFeedEachOtherAreFloat) {
  expect_float_in_body(resonator(), {"y0", "y1b"});
}

TEST(States, ThatBranchesAndFunctionsAddToAreFloat) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    EXPECT_FALSE(decision_on(sum_in_a_branch(), "last/body/s2/then_branch/a", {}, dtype).low);
    EXPECT_FALSE(decision_on(sum_in_a_function(), "last/body/s2/function/r", {}, dtype).low);
    EXPECT_FALSE(decision_on(sum_in_a_loop(), "last/body/s2/body/n2", {}, dtype).low);
  }
}

TEST(States, ThatScattersAddToAreFloatAndThoseThatTheyReplaceAreNot) {
  const auto scattered = [](const char* reduction) {
    GraphBuilder body = body_of_state();
    body.node("MatMul", {"row", "w"}, {"p"});
    body.node("ScatterElements", {"s", "places", "p"}, {"s2"}, attribute("reduction", reduction));
    return loop_of_state(body, 18);
  };
  // The portable profile keeps additions of that kind float32 anyway.
  const Decision added = decision_on(scattered("add"), "last/body/s2", {}, "float16", 4, "spec");
  EXPECT_FALSE(added.low);
  EXPECT_THAT(added.why, HasSubstr("adds to itself"));
  EXPECT_THAT(decision_on(scattered("none"), "last/body/s2").why,
              testing::Not(HasSubstr("adds to itself")));
}

// The matrix rotates by a hundredth, or leaves nothing of a state after a few turns, or very much.
TEST(States, ThatAMatrixKeepsAreFloatAndThoseThatItLetsFadeGoLow) {
  const auto linear = [](const std::vector<float>& matrix) {
    GraphBuilder body = body_of_state();
    body.node("MatMul", {"s", "m"}, {"p"}).node("Add", {"p", "row"}, {"s2"});
    return loop_of_state(body, 17, [&](GraphBuilder& g) { g.weight("m", matrix); });
  };
  expect_low_in_body(linear({0.3F, 0.2F, -0.1F, 0.4F}), {"p"});
  expect_low_in_body(linear({1, 2, 3, 4}), {"p"});
  expect_float_in_body(linear({0.99995F, -0.01F, 0.01F, 0.99995F}), {"p", "s2"});
}

TEST(States, OfCellsGoLow) {
  const Message made = one_state([](GraphBuilder& body) {
    body.node("MatMul", {"s", "w"}, {"u"}).node("Add", {"u", "row"}, {"a"});
    body.node("Tanh", {"a"}, {"s2"});
  });
  expect_low_in_body(made, {"u"});
  const Decision decision = decision_on(made, "last/body/s2");
  EXPECT_THAT(decision.why, testing::Not(HasSubstr("adds to itself")));
}

TEST(States, ThatOnlyMoveGoLow) {
  const auto not_kept = [](const Message& made) {
    EXPECT_THAT(decision_on(made, "last/body/s2").why, testing::Not(HasSubstr("adds to itself")));
  };
  not_kept(one_state([](GraphBuilder& body) { body.node("Max", {"s", "row"}, {"s2"}); }));
  not_kept(one_state([](GraphBuilder& body) {
    body.node("Slice", {"s", "one", "two", "none"}, {"tail"});
    body.node("Slice", {"row", "none", "one", "none"}, {"head"});
    body.node("Concat", {"tail", "head"}, {"s2"}, attribute("axis", std::int64_t{0}));
  }));
}

TEST(States, AreMultipliedByGatesOfFloatAndProductsOfGatesGoLow) {
  expect_float_in_body(gated_state(), {"z", "left", "zs", "s2"});
  expect_low_in_body(gated_state(), {"uz", "un"});
}

TEST(States, AreLowWhereTheCallerLeavesThePinOut) {
  Document document(bytes_of(sum_of_products(LoopKind::kScan)));
  const Graph graph(document);
  for (const bool is_left_out : {false, true}) {
    Options options;
    if (is_left_out) options.without_pins = {"states"};
    const ConvertPolicy policy(options);
    Constants constants(graph, policy.low());
    const Decisions decisions = decide(graph, policy, constants);
    const auto found = std::ranges::find(decisions.list, "last/body/s2", &Decision::key);
    ASSERT_NE(found, decisions.list.end());
    EXPECT_EQ(found->low, is_left_out);
    EXPECT_EQ(found->pin, is_left_out ? "" : "states");
  }
}

}  // namespace
}  // namespace mezzo::convert
