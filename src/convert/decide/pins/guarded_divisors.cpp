// Numbers that keep a divisor, a root's or a logarithm's operand from zero, if the low type has
// none so small: x / max(|x|, 1e-12). The operator that adds the number reads it in float32 because
// of the number itself (objections.cpp); here all that the guarded value becomes stays float32, up
// to the operator that needs it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kGuardedWhy =
    "a small number keeps it from zero until it divides or a logarithm reads it";

class GuardedDivisors {
 public:
  explicit GuardedDivisors(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (!context_.is_standard(node) || node.outputs.empty() || node.outputs[0] == kNone) continue;
      const std::optional<double> bound = bound_of(node);
      if (bound && is_lost(*bound)) follow(node, *bound);
    }
  }

 private:
  // The known bounds of a value: no smaller than `least`, no larger than `most` for what the guard
  // says.
  struct Reach {
    double least = 0;
    double most = 0;
    NodeId by = kNone;     // the node that made it of
    ValueId from = kNone;  // this value
  };

  bool is_lost(double least) const { return least > 0 && least < smallest_normal(context_.low()); }

  // A bound from below; or from above, which keeps what is negative from zero: its magnitude.
  std::optional<double> number(const Node& node, std::size_t input, bool is_above = false) const {
    if (input >= node.inputs.size() || !context_.is_constant(node.inputs[input])) return {};
    const std::vector<double> values = context_.constants.values(node.inputs[input]);
    if (values.empty()) return {};
    const double bound = is_above ? -std::ranges::max(values) : std::ranges::min(values);
    return bound > 0 ? std::optional(bound) : std::nullopt;
  }

  // The smallest number that the node gives, by a constant that it reads.
  std::optional<double> bound_of(const Node& node) const {
    constexpr std::array<std::string_view, 4> kGuards{"Add", "Max", "Sum", "Where"};
    if (node.op == "Clip") {
      if (const Message* bound = graph_.attribute(node, "min"))
        return std::bit_cast<float>(
            static_cast<std::uint32_t>(bound->number(field::attribute::kFloat)));
      const std::optional<double> least = number(node, 1);
      return least ? least : number(node, 2, true);
    }
    const bool is_above = node.op == "Min";
    if (!is_above && std::ranges::find(kGuards, node.op) == kGuards.end()) return {};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (const std::optional<double> found = number(node, i, is_above)) return found;
    }
    return {};
  }

  // The bounds after the reader; nothing if the guard says nothing about them.
  std::optional<Reach> made_of(const Reach& value, const Use& use, const Node& reader) const {
    const auto i = static_cast<std::size_t>(use.input);
    Reach made{value.least, value.most, use.node, kNone};
    if (moves_values(reader.op))
      return i == 0 || hands_on_all(reader.op) ? std::optional(made) : std::nullopt;
    if (reader.op == "Sqrt") return powered(made, 0.5);
    if (reader.op == "Reciprocal") return powered(made, -1);
    if (reader.op == "Pow" && i == 0) {
      const std::optional<double> exponent = exponent_of(reader);
      return exponent ? powered(made, *exponent) : std::nullopt;
    }
    const std::optional<double> factor =
        reader.inputs.size() == 2 ? number(reader, 1 - i) : std::nullopt;
    if (factor && reader.op == "Mul") return scaled(made, *factor);
    if (factor && reader.op == "Div")
      return i == 0 ? scaled(made, 1 / *factor) : scaled(*powered(made, -1), *factor);
    return keeps_small(reader, i, value) ? std::optional(made) : std::nullopt;
  }

  // Sums of small numbers and what other factors make of them are small, as far as anyone knows; so
  // they guard as before. A product with one divided by them is what was guarded.
  bool keeps_small(const Node& reader, std::size_t input, const Reach& value) const {
    if (adds_up(reader.op)) return input == 0;
    if (reader.op == "Mul") return value.most <= largest(context_.low()) || has_constant(reader);
    if (reader.op == "Div") return input == 0;
    constexpr std::array<std::string_view, 4> kAdds{"Add", "Mean", "Sub", "Sum"};
    if (std::ranges::find(kAdds, reader.op) == kAdds.end()) return false;
    for (std::size_t i = 0; i < reader.inputs.size(); ++i) {
      const std::optional<double> other = number(reader, i);
      if (i != input && other && !is_lost(*other)) return false;
    }
    return true;
  }

  bool has_constant(const Node& node) const {
    return std::ranges::any_of(node.inputs, [&](ValueId in) { return context_.is_constant(in); });
  }

  // Is it arithmetic that knows the bounds, and so has a loss of its own?
  bool computes_bounds(const Node& reader) const {
    constexpr std::array<std::string_view, 3> kPowers{"Pow", "Reciprocal", "Sqrt"};
    if (std::ranges::find(kPowers, reader.op) != kPowers.end()) return true;
    if (reader.op != "Mul" && reader.op != "Div") return false;
    return number(reader, 0).has_value() || number(reader, 1).has_value();
  }

  std::optional<double> exponent_of(const Node& pow) const {
    if (pow.inputs.size() != 2 || !context_.is_constant(pow.inputs[1])) return {};
    const std::vector<double> values = context_.constants.values(pow.inputs[1]);
    return values.size() == 1 ? std::optional(values[0]) : std::nullopt;
  }

  static std::optional<Reach> powered(Reach value, double exponent) {
    const double a = value.least == 0 ? 0 : std::pow(value.least, exponent);
    const double b = value.most == 0 ? 0 : std::pow(value.most, exponent);
    value.least = exponent > 0 ? a : b;
    value.most = exponent > 0 ? b : a;
    return value;
  }

  static Reach scaled(Reach value, double factor) {
    value.least *= factor;
    value.most *= factor;
    return value;
  }

  // Does the low type lose what the value is at its end?
  bool is_lost(const Reach& value) const {
    return is_lost(value.least) || value.most > largest(context_.low());
  }

  static bool needs(const Node& reader, int input) {
    if (reader.op == "Div") return input == 1;
    return reader.op == "Log" || reader.op == "Mul";
  }

  void follow(const Node& guard, double bound) {
    std::map<ValueId, Reach> reached;
    reached[guard.outputs[0]] = {bound, 0, context_.id_of(guard), kNone};
    walk_on(graph_, {guard.outputs[0]}, {}, [&](ValueId id, const Use& use, const Node& reader) {
      const auto found = reached.find(id);
      // Bodies and functions hand on what they are given.
      const Reach value = found == reached.end() ? Reach{bound, 0, kNone, kNone} : found->second;
      if (!is_lost(value)) return Onward::kStop;
      std::optional<Reach> made = made_of(value, use, reader);
      const bool is_small = value.most <= largest(context_.low());
      const bool is_needed = reader.op == "Mul" ? !is_small : needs(reader, use.input);
      if (is_needed || (made && computes_bounds(reader))) keep_way(reached, id, use.node);
      if (!made) return Onward::kStop;
      made->from = id;
      for (const ValueId out : reader.outputs) reached.try_emplace(out, *made);
      return Onward::kAll;
    });
  }

  // From the guard to the reader, with both.
  void keep_way(const std::map<ValueId, Reach>& reached, ValueId id, NodeId reader) const {
    context_.keep_node(reader, kGuardedWhy, Level::kNumeric);
    for (int i = 0; i < static_cast<int>(kFarthestWalk) && id != kNone; ++i) {
      const auto found = reached.find(id);
      if (found == reached.end() || found->second.by == kNone) break;
      const bool is_guard = found->second.from == kNone;
      if (!is_guard || is_bias(graph_.node(found->second.by)))
        context_.keep_node(found->second.by, kGuardedWhy, Level::kNumeric);
      id = found->second.from;
    }
  }

  // A guard keeps itself for the sake of its number (objections.cpp), unless that might be a bias.
  bool is_bias(const Node& guard) const {
    return guard.op == "Add" && std::ranges::any_of(guard.inputs, [&](ValueId in) {
             return context_.is_constant(in) && context_.constants.count(in) > 1;
           });
  }

  const PinContext& context_;
  const Graph& graph_;
};

}  // namespace

void pin_guarded_divisors(const PinContext& context) {
  if (!context.policy.allowed().raising) GuardedDivisors(context).run();
}

}  // namespace mezzo::convert
