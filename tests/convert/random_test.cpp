// Random graphs with bodies, constants and shared values: always valid, deterministic, idempotent.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "builder.h"
#include "convert/decide/decide.h"
#include "convert/graph/check.h"
#include "convert/rewrite/apply.h"

namespace mezzo::convert {
namespace {

class Random {
 public:
  explicit Random(std::uint32_t seed) : state_(seed * 2654435761U + 1) {}
  std::uint32_t below(std::uint32_t n) {
    return (state_ = state_ * 1664525U + 1013904223U) / 65536U % n;
  }

 private:
  std::uint32_t state_;
};

// Matrices of two by two all the way, so that every operator fits every value.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_(seed) {}

  Message make() {
    GraphBuilder g;
    std::vector<std::string> values;
    for (std::uint32_t i = 0; i <= random_.below(3); ++i) {
      values.push_back(fresh("in"));
      g.input(values.back());
    }
    g.input("flag", Element::kBool, {}).input("count", Element::kInt64, {});
    fill(g, values, 3 + random_.below(20), 0);
    for (std::uint32_t i = 0; i <= random_.below(3); ++i)
      g.output(values[random_.below(static_cast<std::uint32_t>(values.size()))]);
    return model(g.take(), 13 + static_cast<int>(random_.below(9)));
  }

 private:
  std::string fresh(const std::string& stem) { return stem + std::to_string(counter_++); }
  std::string pick(const std::vector<std::string>& values) {
    return values[random_.below(static_cast<std::uint32_t>(values.size()))];
  }

  void fill(GraphBuilder& g, std::vector<std::string>& values, std::uint32_t nodes, int depth) {
    static const std::vector<std::string> kUnary{
        "Relu", "Exp", "Softmax", "Transpose", "Identity", "Tanh", "Sigmoid", "Sqrt", "Neg", "Log"};
    static const std::vector<std::string> kBinary{"MatMul", "Add", "Mul", "Div", "Sub",
                                                  "Pow",    "Max", "Min", "Gemm"};
    for (std::uint32_t i = 0; i < nodes; ++i) {
      const std::string out = fresh("v");
      const std::uint32_t kind = random_.below(10);
      if (kind < 3) {
        g.node(kUnary[random_.below(static_cast<std::uint32_t>(kUnary.size()))], {pick(values)},
               {out});
      } else if (kind < 7) {
        g.node(kBinary[random_.below(static_cast<std::uint32_t>(kBinary.size()))],
               {pick(values), pick(values)}, {out});
      } else if (kind == 7) {
        const float scale = random_.below(5) == 0 ? 1e6F : random_.below(5) == 0 ? 1e-7F : 1.0F;
        if (random_.below(2) == 0) {
          g.weight(out, {scale, 2, 3, 4});
        } else {
          g.node("Constant", {}, {out},
                 tensor_attribute("value", floats("", {2, 2}, {scale, 1, 1, 1})));
        }
      } else if (depth < 2) {
        body(g, values, out, depth);
      } else {
        g.node("Identity", {pick(values)}, {out});
      }
      values.push_back(out);
    }
  }

  void body(GraphBuilder& g, std::vector<std::string>& values, const std::string& out, int depth) {
    if (random_.below(2) == 0) {
      g.node("If", {"flag"}, {out}, body_attribute("then_branch", branch(values, depth)),
             body_attribute("else_branch", branch(values, depth)));
      return;
    }
    GraphBuilder inner("body");
    const std::string state = fresh("state");
    const std::string still = fresh("still");
    inner.input(fresh("i"), Element::kInt64, {})
        .input(fresh("going"), Element::kBool, {})
        .input(state);
    std::vector<std::string> seen = values;
    seen.push_back(state);
    fill(inner, seen, 1 + random_.below(4), depth + 1);
    inner.node("Identity", {"flag"}, {still});
    inner.output(still, Element::kBool, {}).output(seen.back());
    g.node("Loop", {"count", "flag", pick(values)}, {out}, body_attribute("body", inner.take()));
  }

  Message branch(const std::vector<std::string>& values, int depth) {
    GraphBuilder inner("branch");
    std::vector<std::string> seen = values;
    fill(inner, seen, 1 + random_.below(4), depth + 1);
    return inner.output(seen.back()).take();
  }

  Random random_;
  int counter_ = 0;
};

std::string converted_bytes(const std::string& bytes, const Options& options, Storage storage,
                            std::vector<std::string>* findings) {
  Document document(bytes);
  const Graph graph(document);
  const ConvertPolicy policy(options);
  Constants constants(graph, policy.low());
  const Decisions decisions = decide(graph, policy, constants);
  apply(document, graph, decisions, constants, policy.low(), storage);
  const std::string result = bytes_of(document.model());
  Document again(result);
  const Graph after(again);
  for (const Finding& finding : check_graph(after)) findings->push_back(finding.what);
  return result;
}

// The slow tests ask for more of them.
std::uint32_t random_graphs() {
  const char* asked = std::getenv("MEZZO_RANDOM_GRAPHS");
  return asked ? static_cast<std::uint32_t>(std::stoul(asked)) : 600;
}

TEST(RandomGraphs, AreConvertedToValidGraphs) {
  const std::uint32_t graphs = random_graphs();
  std::size_t changed = 0;
  for (std::uint32_t seed = 0; seed < graphs; ++seed) {
    const std::string bytes = bytes_of(RandomGraph(seed).make());
    Options options;
    options.target_dtype = seed % 3 == 0 ? "bfloat16" : "float16";
    options.io = seed % 2 == 0 ? "keep" : "low";
    options.clamp_weights = seed % 4 >= 2;
    options.raise_epsilons = seed % 8 >= 4;
    for (const Storage storage :
         {Storage::kConverted, Storage::kRuntimeCast, Storage::kWeightsOnly, Storage::kEmulated}) {
      options.weights_only = storage == Storage::kWeightsOnly;
      std::vector<std::string> findings;
      const std::string once = converted_bytes(bytes, options, storage, &findings);
      ASSERT_THAT(findings, testing::IsEmpty())
          << "seed " << seed << " storage " << static_cast<int>(storage);
      EXPECT_EQ(once, converted_bytes(bytes, options, storage, &findings)) << "seed " << seed;
      if (storage != Storage::kConverted) continue;
      changed += once != bytes ? 1 : 0;
      EXPECT_EQ(once, converted_bytes(once, options, storage, &findings))
          << "not idempotent: seed " << seed;
    }
  }
  std::printf("%u random graphs, %zu of them changed\n", graphs, changed);
  EXPECT_GT(changed, graphs / 2);
}

// A plan made of decisions, applied to the same graph, decides the same about everything.
TEST(RandomGraphs, AreDecidedByTheirPlansAsTheyWereBefore) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    Document document(bytes_of(RandomGraph(seed).make()));
    const Graph graph(document);
    Options options;
    options.io = seed % 2 == 0 ? "keep" : "low";
    const ConvertPolicy policy(options);
    Constants constants(graph, policy.low());
    const Decisions first = decide(graph, policy, constants);
    Plan plan;
    plan.decisions = planned_of(graph, first);
    Evidence evidence;
    evidence.plan = &plan;
    const Decisions again = decide(graph, policy, constants, evidence);
    for (Slot slot = 0; slot < static_cast<Slot>(first.low.size()); ++slot)
      ASSERT_EQ(first.is_low(slot), again.is_low(slot)) << "seed " << seed << " slot " << slot;
  }
}

// The result of MXNet's rule on the same slots: a node that nobody decides goes the way of the
// first input that has a type by then.
std::vector<bool> greedy_labels(const Graph& graph, const SlotMap& map) {
  std::vector<std::optional<bool>> label(map.slots.size());
  const auto root = [&](Slot slot) { return static_cast<std::size_t>(map.slots.root(slot)); };
  for (Slot slot = 0; slot < static_cast<Slot>(map.slots.size()); ++slot) {
    if (const Pin* pin = map.slots.pin_of(slot)) label[root(slot)] = pin->label == Label::kLow;
  }
  for (const NodeId id : graph.scope(0).ordered) {
    std::optional<bool> first;
    for (const ValueId in : graph.node(id).inputs) {
      const Slot made = in == kNone ? kNoSlot : map.native[static_cast<std::size_t>(in)];
      if (!first && made != kNoSlot) first = label[root(made)];
    }
    for (const Slot slot : map.variables[static_cast<std::size_t>(id)]) {
      if (slot != kNoSlot && !label[root(slot)]) label[root(slot)] = first.value_or(false);
    }
  }
  std::vector<bool> low;
  for (Slot slot = 0; slot < static_cast<Slot>(map.slots.size()); ++slot)
    low.push_back(label[root(slot)].value_or(false));
  return low;
}

TEST(RandomGraphs, NeedNoMoreCastsThanABlockListOrAGreedyRule) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string bytes = bytes_of(RandomGraph(seed).make());
    Document document(bytes);
    const Graph graph(document);
    // A block list knows no widest class.
    Options options;
    options.widest_dtype_ops = std::vector<std::string>{};
    const ConvertPolicy policy(options);
    Constants constants(graph, policy.low());
    const Decisions decisions = decide(graph, policy, constants);
    // The block list: low wherever nothing forbids it, on the same slots.
    const auto casts = [&](const auto& is_low) {
      std::size_t count = 0;
      for (std::size_t v = 0; v < graph.values.size(); ++v) {
        const Slot made = decisions.map.native[v];
        if (made == kNoSlot) continue;
        const auto differs = [&](Slot slot) {
          return slot != kNoSlot && is_low(slot) != is_low(made);
        };
        count += std::ranges::any_of(decisions.map.uses[v], differs) ? 1 : 0;
      }
      return count;
    };
    const auto ours = casts([&](Slot slot) { return decisions.is_low(slot); });
    const auto block_list = casts([&](Slot slot) {
      const Pin* pin = decisions.map.slots.pin_of(slot);
      return pin == nullptr || pin->label == Label::kLow;
    });
    const std::vector<bool> labels = greedy_labels(graph, decisions.map);
    const auto greedy = casts([&](Slot slot) { return labels[static_cast<std::size_t>(slot)]; });
    bool has_low = false;
    for (Slot slot = 0; slot < static_cast<Slot>(decisions.low.size()); ++slot)
      has_low = has_low || decisions.is_low(slot);
    if (!has_low || graph.scopes.size() != 1) continue;
    EXPECT_LE(ours, block_list) << "seed " << seed;
    EXPECT_LE(ours, greedy) << "seed " << seed;
  }
}

}  // namespace
}  // namespace mezzo::convert
