// Selections: operators that choose by comparing values. Compared values keep their digits on the
// way from the last product of matrices, and a value that is compared with a part of itself keeps
// its type, so that rounding reorders nothing that the products told apart.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/sizes.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

// Comparisons for which a value and a rounded copy of it differ.
constexpr std::array<std::string_view, 5> kCompares{"Equal", "Greater", "GreaterOrEqual", "Less",
                                                    "LessOrEqual"};

class Selections {
 public:
  explicit Selections(const PinContext& context)
      : context_(context),
        graph_(context.graph),
        map_(context.map),
        state_(graph_.nodes.size(), State::kUnseen),
        seen_(graph_.values.size(), false) {}

  void run() {
    // Places first: their ways go on where those of choices end.
    for (const bool is_place : {true, false}) collect_all(is_place);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      // Its offsets have the type of what it samples.
      if (node.op == "DeformConv")
        context_.keep_node(static_cast<NodeId>(n), "its offsets are coordinates");
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

  State& state(NodeId id) { return state_[static_cast<std::size_t>(id)]; }

  void keep(NodeId id) {
    state(id) = State::kKept;
    for (const Slot slot : map_.variables[static_cast<std::size_t>(id)]) {
      map_.slots.pin(slot, Label::kHigh, Level::kPattern, "what it computes decides a choice");
    }
  }

  void collect_all(bool are_places) {
    for (const Node& node : graph_.nodes) {
      const OperatorFacts* facts = context_.is_standard(node) ? find_facts(node.op) : nullptr;
      for (std::size_t i = 0; facts != nullptr && i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNone || !facts->decides_by(i)) continue;
        if (facts->places_by(i) == are_places) collect(node.inputs[i], are_places);
      }
    }
  }

  // Goes back from a choice to the products: arithmetic is kept at once, what only moves values is
  // noted, since it has nothing to lose where all that it moves was low before.
  void collect(ValueId chosen, bool is_place) {
    const auto visit = [&](ValueId id, const Node* node) {
      if (node == nullptr) return Onward::kAll;
      if (!is_between(node->op) && !(is_place && transforms_places(*node))) return Onward::kStop;
      const NodeId made_by = graph_.value(id).producer;
      if (moves_values(node->op)) {
        if (state(made_by) == State::kUnseen) state(made_by) = State::kMoves;
      } else if (state(made_by) != State::kKept) {
        keep(made_by);
      }
      return Onward::kAll;
    };
    walk_back(graph_, {chosen}, {.farthest = graph_.values.size()}, visit, &seen_);
  }

  // A product over so few numbers that they are coordinates: a rotation, a homography, an affine
  // transform of a grid. Layers sum over more.
  bool transforms_places(const Node& node) {
    constexpr std::int64_t kMostCoordinates = 4;
    if ((node.op != "MatMul" && node.op != "Gemm") || node.inputs[0] == kNone) return false;
    if (shapes_.empty()) shapes_ = known_shapes(graph_);
    const auto& shape = shapes_[static_cast<std::size_t>(node.inputs[0])];
    if (!shape || shape->empty()) return false;
    const bool is_transposed = node.op == "Gemm" && graph_.integer(node, "transA", 0) != 0;
    const std::int64_t terms = is_transposed ? shape->front() : shape->back();
    return terms > 1 && terms <= kMostCoordinates;
  }

  // Nothing that was kept is rounded on its way to the choice.
  void keep_what_moves() {
    std::vector<ValueId> kept;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::vector<ValueId>& made = graph_.nodes[n].outputs;
      if (state_[n] == State::kKept) kept.insert(kept.end(), made.begin(), made.end());
    }
    const WalkBounds bounds{.farthest = graph_.values.size(), .through = Through::kNothing};
    walk_on(graph_, kept, bounds, [&](ValueId, const Use& use, const Node&) {
      if (state(use.node) != State::kMoves) return Onward::kStop;
      keep(use.node);
      return Onward::kAll;
    });
  }

  // The values from which this one was taken without arithmetic, nearest first.
  std::vector<ValueId> sources(ValueId id) const {
    return walk_back(graph_, {id}, {}, [&](ValueId at, const Node* node) {
      if (node == nullptr) return Onward::kStop;
      const bool takes = (node->op == "TopK" && graph_.value(at).output == 0) ||
                         (moves_values(node->op) && node->op != "Where");
      return takes ? Onward::kFirst : Onward::kStop;
    });
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

  const PinContext& context_;
  const Graph& graph_;
  SlotMap& map_;
  std::vector<State> state_;
  std::vector<bool> seen_;                                        // values that decide
  std::vector<std::optional<std::vector<std::int64_t>>> shapes_;  // read when a product asks
};

}  // namespace

void pin_selections(const PinContext& context) {
  Selections(context).run();
}

}  // namespace mezzo::convert
