// Signal processing inside a model: pre-emphasis, and logarithms of powers. Both show errors that
// learned layers hide.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/sizes.h"
#include "convert/graph/walk.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kDifferenceWhy = "a signal less its own neighbours: a small difference";

class Signals {
 public:
  explicit Signals(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!context_.is_standard(node)) continue;
      if (node.op == "Log" && has_fewer_exponents()) logarithm(node);
      if (node.op == "Conv") difference_by_weights(static_cast<NodeId>(n));
      if (node.op != "Sub") continue;
      difference(static_cast<NodeId>(n));
      difference_of_sums(static_cast<NodeId>(n));
    }
  }

 private:
  // bfloat16 has float's range: relative errors, which a logarithm makes small, are all it adds.
  bool has_fewer_exponents() const {
    return smallest_normal(context_.low()) > std::numeric_limits<float>::min();
  }

  // A logarithm tells small numbers apart that half cannot: powers of quiet sounds, probabilities.
  // So its operand is float32 from the operator on that computes it, unless a guard keeps it in
  // half's normal range.
  void logarithm(const Node& log) {
    constexpr std::string_view kWhy = "a logarithm reads it, however small it is";
    walk_back(graph_, log.inputs, {}, [&](ValueId id, const Node* node) {
      if (!context_.is_open(id) || (node != nullptr && is_guarded(*node))) return Onward::kStop;
      context_.keep_value(id, kWhy);
      const bool is_through = node == nullptr || moves_values(node->op) || is_sum(*node);
      return is_through ? Onward::kAll : Onward::kStop;
    });
  }

  static bool is_sum(const Node& node) {
    return node.domain.empty() && (node.op == "Add" || node.op == "Sum");
  }

  // Is the result in the normal range for the constants of the model: x + 1, max(x, 1e-3)?
  bool is_guarded(const Node& node) const {
    if (!node.domain.empty()) return false;
    if (node.op == "Clip" && node.inputs.size() == 1) {
      const Message* bound = graph_.attribute(node, "min");
      if (bound == nullptr) return false;
      const auto bits = static_cast<std::uint32_t>(bound->number(field::attribute::kFloat));
      return std::bit_cast<float>(bits) >= smallest_normal(context_.low());
    }
    if (!is_sum(node) && node.op != "Max" && node.op != "Clip") return false;
    const std::size_t end = node.op == "Clip" ? 2 : node.inputs.size();
    for (std::size_t i = node.op == "Clip" ? 1 : 0; i < std::min(end, node.inputs.size()); ++i) {
      const ValueId id = node.inputs[i];
      if (!context_.is_constant(id)) continue;
      const std::vector<double> values = context_.constants.values(id);
      if (!values.empty() && std::ranges::min(values) >= smallest_normal(context_.low()))
        return true;
    }
    return false;
  }

  // A signal less its own past, times a number or not: samples differ little from their
  // neighbours, and rounding them first is an error that the difference does not share.
  void difference(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return;
    const std::vector<ValueId> left = sources(node.inputs[0]);
    const std::vector<ValueId> right = sources(node.inputs[1]);
    for (const ValueId source : left) {
      if (std::ranges::find(right, source) == right.end() || is_made_by_product(source)) continue;
      context_.keep_value(source, kDifferenceWhy);
      context_.keep_node(id, kDifferenceWhy);
    }
  }

  // The same as a convolution: Sobel, Laplace, pre-emphasis.
  void difference_by_weights(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.inputs.size() < 2 || !is_difference(node.inputs[1])) return;
    for (const ValueId source : sources(node.inputs[0])) {
      if (!context_.is_open(source) || is_made_by_product(source)) continue;
      context_.keep_value(source, kDifferenceWhy);
      context_.keep_node(id, kDifferenceWhy);
    }
  }

  // Do the numbers of each filter nearly cancel? Those that are learned do not.
  bool is_difference(ValueId weights) {
    constexpr double kLeft = 1.0 / 16;
    if (!context_.is_constant(weights)) return false;
    const std::vector<double> values = context_.constants.values(weights);
    if (values.empty()) return false;
    if (shapes_.empty()) shapes_ = known_shapes(graph_);
    const auto& shape = shapes_[static_cast<std::size_t>(weights)];
    if (!shape || shape->empty() || shape->front() <= 0) return false;
    const std::size_t filter = values.size() / static_cast<std::size_t>(shape->front());
    for (std::size_t begin = 0; begin < values.size(); begin += filter) {
      double sum = 0, magnitudes = 0;
      for (std::size_t i = begin; i < begin + filter; ++i) {
        sum += values[i];
        magnitudes += std::abs(values[i]);
      }
      if (magnitudes == 0 || std::abs(sum) > kLeft * magnitudes) return false;
    }
    return true;
  }

  // (c + a) - (c - b): what both sums have goes, and with it all that rounding them left of a
  // and b. So neither sum is rounded.
  void difference_of_sums(NodeId id) {
    constexpr std::string_view kWhy = "a difference of sums of the same number: it cancels out";
    const Node& node = graph_.node(id);
    if (node.inputs.size() != 2 || node.inputs[0] == kNone || node.inputs[1] == kNone) return;
    const ValueId left = shifted_from(node.inputs[0]);
    const ValueId right = shifted_from(node.inputs[1]);
    if (left == right) return;
    const Node* one = sum(left);
    const Node* other = sum(right);
    if (one == nullptr || other == nullptr) return;
    const bool cancels = std::ranges::any_of(one->inputs, [&](ValueId in) {
      return in != kNone && std::ranges::find(other->inputs, in) != other->inputs.end();
    });
    if (!cancels) return;
    for (const ValueId side : {left, right}) keep_way(side, node, kWhy);
    context_.keep_node(id, kWhy);
  }

  const Node* sum(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    if (producer == kNone) return nullptr;
    const Node& node = graph_.node(producer);
    return is_sum(node) || (node.domain.empty() && node.op == "Sub") ? &node : nullptr;
  }

  // The value that another one is a moved part of.
  ValueId shifted_from(ValueId id) const { return shifts_before(id).back(); }

  std::vector<ValueId> shifts_before(ValueId id) const {
    return walk_back(graph_, {id}, {}, [](ValueId, const Node* node) {
      const bool is_moved = node != nullptr && moves_values(node->op) && node->op != "Where";
      return is_moved ? Onward::kFirst : Onward::kStop;
    });
  }

  // A sum, and what moves it to the difference.
  void keep_way(ValueId side, const Node& difference, std::string_view why) {
    for (const ValueId in : difference.inputs) {
      const std::vector<ValueId> way = shifts_before(in);
      if (way.back() != side) continue;
      for (const ValueId at : way) context_.keep_node(graph_.value(at).producer, why);
    }
  }

  bool is_made_by_product(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer != kNone && is_product(graph_.node(producer).qualified_name());
  }

  // The values that a value is a shifted and scaled part of: where moving, and products with
  // numbers, begin.
  std::vector<ValueId> sources(ValueId id) const {
    std::vector<ValueId> found;
    walk_back(graph_, {id}, {}, [&](ValueId at, const Node* node) {
      if (!context_.is_open(at)) return Onward::kStop;
      if (node != nullptr && (shifts(*node) || scales(*node))) return Onward::kAll;
      found.push_back(at);
      return Onward::kStop;
    });
    return found;
  }

  static bool shifts(const Node& node) {
    constexpr std::array<std::string_view, 9> kShifts{"Concat",  "Identity",        "Pad",
                                                      "Reshape", "ScatterElements", "Slice",
                                                      "Squeeze", "Unsqueeze",       "Where"};
    return std::ranges::find(kShifts, node.op) != kShifts.end();
  }

  bool scales(const Node& node) const {
    if (node.op != "Mul" && node.op != "Div") return false;
    return std::ranges::any_of(node.inputs, [&](ValueId in) {
      return context_.is_constant(in) && context_.constants.count(in) == 1;
    });
  }

  const PinContext& context_;
  const Graph& graph_;
  std::vector<std::optional<std::vector<std::int64_t>>> shapes_;  // read when a filter asks
};

}  // namespace

void pin_signals(const PinContext& context) {
  Signals(context).run();
}

}  // namespace mezzo::convert
