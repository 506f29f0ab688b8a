#include "convert/decide/pins/masks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

struct MaskPlace {
  std::string_view op;
  int input;
};

constexpr std::array kMaskPlaces{
    MaskPlace{"Attention", 3},
    MaskPlace{"com.microsoft::Attention", 5},
    MaskPlace{"com.microsoft::MultiHeadAttention", 5},
    MaskPlace{"com.microsoft::GroupQueryAttention", 10},
    MaskPlace{"com.microsoft::BiasSoftmax", 1},
};

class Masks {
 public:
  Masks(const Graph& graph, const Constants& constants, Element low)
      : graph_(graph), constants_(constants), low_(low) {}

  /// Calls `found` with each far mask and the ways back to what makes it far.
  template <typename Found>
  void each(const Found& found) const {
    for (const Node& node : graph_.nodes) {
      if (!node.is_described() || (is_sum(node) && !is_added_to_scores(node))) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (!is_open(node.inputs[i]) || !is_place(node, static_cast<int>(i))) continue;
        const std::vector<ValueId> way = way_from(node.inputs[i]);
        if (!way.empty()) found(node.inputs[i], way);
      }
    }
  }

 private:
  bool is_open(ValueId id) const {
    return id != kNone && is_float_based(graph_.value(id).type) && !constants_.is_constant(id);
  }

  static bool is_sum(const Node& node) {
    return node.domain.empty() && (node.op == "Add" || node.op == "Sub");
  }

  static bool is_place(const Node& node, int input) {
    if (is_sum(node)) return node.op == "Add" || input == 1;
    return std::ranges::any_of(kMaskPlaces, [&](const MaskPlace& place) {
      return place.input == input && place.op == node.qualified_name();
    });
  }

  bool is_added_to_scores(const Node& sum) const {
    bool are_scores = false;
    walk_on(graph_, sum.outputs, {}, [&](ValueId, const Use& use, const Node& reader) {
      are_scores = are_scores || reader.op == "Softmax" || reader.op == "LogSoftmax";
      const bool is_passed = (moves_values(reader.op) && use.input == 0) || reader.op == "Add" ||
                             reader.op == "Max" || reader.op == "Where";
      return is_passed && !are_scores ? Onward::kFirst : Onward::kStop;
    });
    return are_scores;
  }

  // To floats that a caller gives and arithmetic with numbers beyond the range, through all but
  // products.
  std::vector<ValueId> way_from(ValueId mask) const {
    return ways_back_to_goals(graph_, mask, {}, [&](ValueId id, const Node* node) -> WayStep {
      if (!is_float_based(graph_.value(id).type) || constants_.is_constant(id)) return {};
      const Value& value = graph_.value(id);
      if (value.is_scope_input && value.scope == 0) return {Onward::kStop, true};
      if (node == nullptr) return {Onward::kAll, false};
      const bool is_passed = moves_values(node->op) || kind_of(node->op) == Kind::kElementwise;
      if (node->op == "Cast") return {Onward::kStop, is_of_doubles(*node)};
      if (!is_passed) return {};
      return {Onward::kAll, std::ranges::any_of(node->inputs, [&](ValueId in) {
                return in != kNone && constants_.is_constant(in) && is_far(in);
              })};
    });
  }

  bool is_of_doubles(const Node& cast) const {
    return !cast.inputs.empty() && cast.inputs[0] != kNone &&
           graph_.value(cast.inputs[0]).type.element == Element::kDouble;
  }

  bool is_far(ValueId constant) const {
    return std::ranges::any_of(constants_.values(constant), [&](double value) {
      return std::isfinite(value) && std::fabs(value) >= overflows_at(low_);
    });
  }

  const Graph& graph_;
  const Constants& constants_;
  Element low_;
};

}  // namespace

std::vector<bool> far_masks(const Graph& graph, const Constants& constants, Element low) {
  std::vector<bool> are_masks(graph.values.size());
  Masks(graph, constants, low).each([&](ValueId mask, const std::vector<ValueId>&) {
    are_masks[static_cast<std::size_t>(mask)] = true;
  });
  return are_masks;
}

// All between the mask and what makes it far stays float32, so that the mask itself is what is
// brought into the range.
void pin_masks(const PinContext& context) {
  constexpr std::string_view kWhy = "a mask that may be beyond the range";
  Masks(context.graph, context.constants, context.low())
      .each([&](ValueId, const std::vector<ValueId>& way) {
        for (const ValueId id : way) {
          if (const Node* node = context.maker(id)) context.keep_node(context.id_of(*node), kWhy);
          if (context.native(id) != kNoSlot && context.maker(id) == nullptr)
            context.keep_value(id, kWhy);
        }
      });
}

}  // namespace mezzo::convert
