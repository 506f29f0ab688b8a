// Selections: operators that choose by comparing values. What they compare keeps its digits on the
// way from the last product of matrices, and what is compared with a part of itself keeps its type,
// so that rounding reorders nothing that the products told apart.
#include <algorithm>
#include <array>
#include <utility>

#include "convert/decide/decide.h"
#include "convert/standard/rules.h"

namespace mezzo::convert {
namespace {

// Operators whose result is a choice, with the input that they choose by.
constexpr std::array<std::pair<std::string_view, std::size_t>, 10> kChooses{{
    {"ArgMax", 0},
    {"ArgMin", 0},
    {"Compress", 1},
    {"Hardmax", 0},
    {"NonMaxSuppression", 0},
    {"NonMaxSuppression", 1},
    {"NonZero", 0},
    {"RoiAlign", 1},
    {"TopK", 0},
    {"Unique", 0},
}};

// What may stand between a product and a choice: element by element, or over neighbours.
constexpr std::array<std::string_view, 41> kOnTheWay{"Add",
                                                     "And",
                                                     "AveragePool",
                                                     "Ceil",
                                                     "Div",
                                                     "Equal",
                                                     "Erf",
                                                     "Exp",
                                                     "Floor",
                                                     "Greater",
                                                     "GreaterOrEqual",
                                                     "HardSigmoid",
                                                     "HardSwish",
                                                     "Less",
                                                     "LessOrEqual",
                                                     "Log",
                                                     "LogSoftmax",
                                                     "Mean",
                                                     "Mod",
                                                     "Mul",
                                                     "Not",
                                                     "Or",
                                                     "Pow",
                                                     "Reciprocal",
                                                     "ReduceL1",
                                                     "ReduceL2",
                                                     "ReduceLogSumExp",
                                                     "ReduceMean",
                                                     "ReduceProd",
                                                     "ReduceSum",
                                                     "Resize",
                                                     "Round",
                                                     "Sigmoid",
                                                     "Softmax",
                                                     "Softplus",
                                                     "Sqrt",
                                                     "Sub",
                                                     "Sum",
                                                     "Tanh",
                                                     "Upsample",
                                                     "Xor"};
static_assert(std::ranges::is_sorted(kOnTheWay), "bisected: keep sorted");

// Comparisons for which a value and a rounded copy of it differ.
constexpr std::array<std::string_view, 5> kCompares{"Equal", "Greater", "GreaterOrEqual", "Less",
                                                    "LessOrEqual"};

class Selections {
 public:
  Selections(const Graph& graph, SlotMap& map)
      : graph_(graph), map_(map), state_(graph.nodes.size(), State::kUnseen) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      for (const auto& [op, input] : kChooses) {
        if (node.op == op && input < node.inputs.size()) collect(node.inputs[input]);
      }
      if (is_one_of(kCompares, node.op)) compare_with_itself(static_cast<NodeId>(n), node);
    }
    keep_what_moves();
  }

 private:
  enum class State : std::uint8_t { kUnseen, kMoves, kKept };

  template <typename List>
  static bool is_one_of(const List& list, std::string_view op) {
    return std::ranges::find(list, op) != list.end();
  }

  static bool moves(const Node& node) {
    const Rule* rule = find_rule(node.qualified_name());
    return rule != nullptr && rule->moves;
  }

  State& state(NodeId id) { return state_[static_cast<std::size_t>(id)]; }

  NodeId producer(ValueId id) const {
    const NodeId made = id == kNone ? kNone : graph_.value(id).producer;
    return made == kNone || !graph_.node(made).domain.empty() || graph_.node(made).schema == nullptr
               ? kNone
               : made;
  }

  void keep(NodeId id) {
    state(id) = State::kKept;
    for (const Slot slot : map_.variables[static_cast<std::size_t>(id)]) {
      map_.slots.pin(slot, Label::kHigh, Level::kPattern, "what it computes decides a choice");
    }
    kept_.push_back(id);
  }

  // Goes back from a choice to the products: arithmetic is kept at once, what only moves values is
  // noted, since it has nothing to lose where all that it moves was low before.
  void collect(ValueId chosen) {
    std::vector<ValueId> stack{chosen};
    while (!stack.empty()) {
      const NodeId id = producer(stack.back());
      stack.pop_back();
      if (id == kNone || state(id) != State::kUnseen) continue;
      const Node& node = graph_.node(id);
      if (std::ranges::binary_search(kOnTheWay, node.op)) {
        keep(id);
      } else if (moves(node)) {
        state(id) = State::kMoves;
      } else {
        continue;
      }
      stack.insert(stack.end(), node.inputs.begin(), node.inputs.end());
    }
  }

  // Nothing that was kept is rounded on its way to the choice.
  void keep_what_moves() {
    while (!kept_.empty()) {
      const NodeId id = kept_.back();
      kept_.pop_back();
      for (const ValueId made : graph_.node(id).outputs) {
        if (made == kNone) continue;
        for (const Use& use : graph_.value(made).uses) {
          if (use.node != kNone && state(use.node) == State::kMoves) keep(use.node);
        }
      }
    }
  }

  // The values from which this one was taken without arithmetic, nearest first.
  std::vector<ValueId> sources(ValueId id) const {
    constexpr std::size_t kFar = 8;
    std::vector<ValueId> found{id};
    while (found.size() < kFar) {
      const NodeId made = producer(found.back());
      if (made == kNone) break;
      const Node& node = graph_.node(made);
      const bool takes = (node.op == "TopK" && graph_.value(found.back()).output == 0) ||
                         (moves(node) && node.op != "Where");
      if (!takes || node.inputs.empty() || node.inputs[0] == kNone) break;
      found.push_back(node.inputs[0]);
    }
    return found;
  }

  // x == MaxPool(x), x < TopK(x): all between x and the comparison is in one type.
  void compare_with_itself(NodeId comparison, const Node& node) {
    if (node.inputs.size() != 2 || node.inputs[0] == kNone || node.inputs[1] == kNone) return;
    const std::vector<ValueId> left = sources(node.inputs[0]);
    const std::vector<ValueId> right = sources(node.inputs[1]);
    const auto common = std::ranges::find_first_of(left, right);
    if (common == left.end()) return;
    const auto slot = [&](ValueId id) { return map_.native[static_cast<std::size_t>(id)]; };
    if (slot(*common) == kNoSlot) return;
    for (const auto* side : {&left, &right}) {
      for (auto at = side->begin(); *at != *common; ++at)
        map_.slots.unite(slot(*at), slot(*common));
    }
    for (const Slot reader : map_.variables[static_cast<std::size_t>(comparison)]) {
      map_.slots.unite(reader, slot(*common));
    }
  }

  const Graph& graph_;
  SlotMap& map_;
  std::vector<State> state_;
  std::vector<NodeId> kept_;  // whose readers were not looked at yet
};

}  // namespace

void pin_selections(const Graph& graph, SlotMap& map) {
  Selections(graph, map).run();
}

}  // namespace mezzo::convert
