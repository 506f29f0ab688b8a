// Masks: what is added to scores before their softmax, -1e9 where nothing is to be seen. A caller
// gives them, or they are made with such a number, which in half is minus infinity: then a row that
// is masked whole has no softmax. Between -1e9 and a score nothing is left of the score, which no
// number of half does to it; so the sum stays float32, and what is multiplied goes low.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kMaskWhy = "a mask that may be beyond the range";

// Operators that take a mask, and the input that it is.
struct MaskPlace {
  std::string_view op;
  std::size_t input;
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
  explicit Masks(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (is_sum(node)) {
        masked_sum(node);
      } else {
        for (const MaskPlace& place : kMaskPlaces) {
          if (node.schema != nullptr && place.op == node.qualified_name())
            masked(node, place.input);
        }
      }
    }
  }

 private:
  bool is_sum(const Node& node) const {
    return context_.is_standard(node) && node.inputs.size() == 2 &&
           (node.op == "Add" || node.op == "Sub");
  }

  // The type of the mask itself where it has one, as Attention's, or else of the whole operator.
  void masked(const Node& node, std::size_t input) {
    if (input >= node.inputs.size() || !keep_way(node.inputs[input])) return;
    const Formal* formal = node.schema->input(input);
    const auto& variables = context_.map.variables[static_cast<std::size_t>(context_.id_of(node))];
    if (formal == nullptr || formal->variable >= variables.size()) return;
    context_.map.slots.pin(variables[formal->variable], Label::kHigh, Level::kPattern,
                           std::string(kMaskWhy));
  }

  void masked_sum(const Node& sum) {
    const std::vector<ValueId> onward = way_to_softmax(sum);
    if (onward.empty()) return;
    bool is_masked = false;
    for (std::size_t i = sum.op == "Sub" ? 1 : 0; i < 2; ++i)
      is_masked = keep_way(sum.inputs[i]) || is_masked;
    if (!is_masked) return;
    for (const ValueId id : onward) {
      if (const Node* node = context_.maker(id))
        context_.keep_node(context_.id_of(*node), kMaskWhy);
    }
  }

  // The values from a sum of scores on to the result of a softmax; nothing if there is none.
  std::vector<ValueId> way_to_softmax(const Node& sum) const {
    std::vector<ValueId> way = sum.outputs;
    bool is_there = false;
    walk_on(graph_, sum.outputs, {}, [&](ValueId, const Use& use, const Node& reader) {
      const bool is_end = reader.op == "Softmax" || reader.op == "LogSoftmax";
      const bool is_passed = (moves_values(reader.op) && use.input == 0) || reader.op == "Add" ||
                             reader.op == "Max" || reader.op == "Where";
      if (is_end || is_passed) way.insert(way.end(), reader.outputs.begin(), reader.outputs.end());
      is_there = is_there || is_end;
      return is_passed ? Onward::kFirst : Onward::kStop;
    });
    return is_there ? way : std::vector<ValueId>();
  }

  // Keeps what the mask is made of, up to floats that a caller gives and arithmetic with numbers
  // beyond the range, through all but products; is there such a thing?
  bool keep_way(ValueId mask) {
    if (!context_.is_open(mask)) return false;
    const auto visit = [&](ValueId id, const Node* node) -> WayStep {
      if (!context_.is_open(id)) return {};
      const Value& value = graph_.value(id);
      if (value.is_scope_input && value.scope == 0) return {Onward::kStop, true};
      if (node == nullptr) return {Onward::kAll, false};
      if (node->op == "Cast") return {Onward::kStop, is_of_doubles(*node)};
      if (!moves_values(node->op) && kind_of(node->op) != Kind::kElementwise) return {};
      return {Onward::kAll, std::ranges::any_of(node->inputs, [&](ValueId in) {
                return context_.is_constant(in) && is_far(in);
              })};
    };
    const std::vector<ValueId> way = ways_back_to_goals(graph_, mask, {}, visit);
    for (const ValueId id : way) {
      const Node* node = context_.maker(id);
      if (node != nullptr) context_.keep_node(context_.id_of(*node), kMaskWhy);
      if (node == nullptr && graph_.value(id).scope != 0) context_.keep_value(id, kMaskWhy);
    }
    return !way.empty();
  }

  bool is_of_doubles(const Node& cast) const {
    return !cast.inputs.empty() && cast.inputs[0] != kNone &&
           graph_.value(cast.inputs[0]).type.element == Element::kDouble;
  }

  bool is_far(ValueId constant) const {
    return std::ranges::any_of(context_.constants.values(constant), [&](double value) {
      return std::isfinite(value) && std::fabs(value) >= overflows_at(context_.low());
    });
  }

  const PinContext& context_;
  const Graph& graph_;
};

}  // namespace

void pin_masks(const PinContext& context) {
  Masks(context).run();
}

}  // namespace mezzo::convert
