// Differences of numbers that are near each other: 1 - c of a probability, one edge of a box less
// another. Rounding the operands is an error as large as before and a result that is smaller; a
// logarithm, a divisor or a threshold shows it, and in bfloat16 whoever reads the model's outputs.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kNearWhy = "a difference of numbers that may be near each other";

class Differences {
 public:
  explicit Differences(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (!context_.is_standard(node)) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNone || !shows_differences(node, i)) continue;
        if (keep_differences(node.inputs[i])) context_.keep_node(context_.id_of(node), kNearWhy);
      }
    }
    if (!has_few_digits()) return;
    for (const ValueId out : graph_.scope(0).outputs) {
      if (out != kNone && context_.is_open(out)) keep_differences(out);
    }
  }

 private:
  // bfloat16 has float's range, and pays with digits.
  bool has_few_digits() const {
    return smallest_normal(context_.low()) <= std::numeric_limits<float>::min();
  }

  bool shows_differences(const Node& node, std::size_t input) const {
    constexpr std::array<std::string_view, 5> kThresholds{"Equal", "Greater", "GreaterOrEqual",
                                                          "Less", "LessOrEqual"};
    if (node.op == "Log") return true;
    if (!has_few_digits()) return false;
    return (node.op == "Div" && input == 1) || node.op == "Reciprocal" ||
           std::ranges::find(kThresholds, node.op) != kThresholds.end();
  }

  // a - b, or a + -b.
  bool is_difference(const Node& node) const {
    if (node.op == "Sub") return true;
    return node.op == "Add" && std::ranges::any_of(node.inputs, [&](ValueId in) {
             const Node* maker = context_.maker(in);
             return maker != nullptr && maker->op == "Neg";
           });
  }

  // Keeps differences between a value and the products before it, what they are taken of, and what
  // becomes of them; was there one?
  bool keep_differences(ValueId from) const {
    std::map<ValueId, bool> is_operand{{from, false}};
    const auto visit = [&](ValueId id, const Node* node) -> WayStep {
      if (node == nullptr) return {context_.is_open(id) ? Onward::kAll : Onward::kStop, false};
      const Kind kind = kind_of(node->op);
      if (kind != Kind::kMoves && kind != Kind::kElementwise) return {};
      const bool is_goal = is_operand[id] || is_difference(*node);
      for (const ValueId in : node->inputs) {
        bool& known = is_operand[in];
        known = known || is_goal;
      }
      return {Onward::kAll, is_goal};
    };
    const std::vector<ValueId> way = ways_back_to_goals(graph_, from, {}, visit);
    for (const ValueId id : way) {
      if (const Node* node = context_.maker(id))
        context_.keep_node(context_.id_of(*node), kNearWhy);
    }
    return !way.empty();
  }

  const PinContext& context_;
  const Graph& graph_;
};

}  // namespace

void pin_differences(const PinContext& context) {
  Differences(context).run();
}

}  // namespace mezzo::convert
