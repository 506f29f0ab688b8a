// States of Loop and Scan that add to themselves: counts, running means, decayed sums. A turn adds
// little to much, so half stops counting at 2048 and bfloat16 at 256, and each turn rounds once
// more what all turns before have left. A state that passes a layer and its activation on the way
// begins anew with every turn, and goes low.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/body_ways.h"
#include "convert/graph/sizes.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kStateWhy = "a state that adds to itself from turn to turn";
constexpr std::string_view kFactorWhy = "a state that adds to itself is multiplied by it";

template <std::size_t n>
bool is_among(const std::array<std::string_view, n>& operators, const Node& node) {
  return std::ranges::find(operators, node.op) != operators.end();
}

bool is_scatter(const Node& node) {
  constexpr std::array<std::string_view, 4> kScatters{"Scatter", "ScatterElements", "ScatterND",
                                                      "TensorScatter"};
  return is_among(kScatters, node);
}

/// The state of a body: what a turn reads of the one before, and what it leaves to the next.
struct State {
  ScopeId body = kNone;
  ValueId entry = kNone, result = kNone;
};

// Through which operators a state stays itself.
enum class Passing : std::uint8_t {
  kSums,       // anything that computes element by element or adds up
  kTransforms  // products by matrices that keep what they multiply, and sums
};

class States {
 public:
  explicit States(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (!context_.is_standard(node) || (node.op != "Loop" && node.op != "Scan")) continue;
      const ScopeId body = node.body("body");
      if (body == kNone) continue;
      for (const State& state : states_of(body)) look(state);
    }
  }

 private:
  std::vector<State> states_of(ScopeId body) const {
    std::vector<State> states;
    const std::vector<std::vector<ValueId>> after = values_after_results(graph_, body);
    for (std::size_t i = 0; i < after.size(); ++i) {
      for (const ValueId id : after[i]) {
        const Value& value = graph_.value(id);
        if (value.is_scope_input && value.scope == body && context_.is_open(id))
          states.push_back({body, id, graph_.scope(body).outputs[i]});
      }
    }
    return states;
  }

  void look(const State& state) {
    const std::vector<ValueId> sums = ways(state, Passing::kSums);
    if (std::ranges::any_of(sums, [&](ValueId id) { return is_result_of_sum(id); }))
      return keep(state, sums);
    const std::vector<ValueId> transforms = ways(state, Passing::kTransforms);
    if (are_lasting(transforms)) keep(state, transforms);
  }

  // A P A^T of a covariance; layers in a row are more products than that. Matrices that are
  // computed may be anything, unless there is something to add to.
  bool are_lasting(const std::vector<ValueId>& transforms) {
    constexpr int kMostProducts = 2;
    int products = 0;
    bool has_sum = false;
    bool has_computed = false;
    for (const ValueId id : transforms) {
      const Node* node = maker(id);
      has_sum = has_sum || is_result_of_sum(id);
      if (node == nullptr || !is_product(node->op)) continue;
      ++products;
      has_computed = has_computed || std::ranges::none_of(node->inputs, [&](ValueId in) {
                       return context_.is_constant(in);
                     });
    }
    return products > 0 && products <= kMostProducts && (has_sum || !has_computed);
  }

  // The values on the ways on which the state of one turn comes into that of the next, perhaps
  // through other states. Empty if there are none.
  std::vector<ValueId> ways(const State& state, Passing passing) {
    std::unordered_map<ValueId, std::vector<ValueId>> after;
    walk_once(state.result, [&](ValueId id) {
      if (id == state.entry) return std::vector<ValueId>();
      std::vector<ValueId> before = made_of(state.body, id, passing);
      for (const ValueId in : before) after[in].push_back(id);
      return before;
    });
    if (!after.contains(state.entry)) return {};
    return walk_once(state.entry, [&](ValueId id) {
      const auto found = after.find(id);
      return found == after.end() ? std::vector<ValueId>() : found->second;
    });
  }

  template <typename Next>
  std::vector<ValueId> walk_once(ValueId from, const Next& next) const {
    std::unordered_set<ValueId> seen{from};
    return walk_places(std::vector<ValueId>{from}, graph_.values.size(), [&](ValueId id) {
      std::vector<ValueId> behind = next(id);
      std::erase_if(behind, [&](ValueId at) { return at == kNone || !seen.insert(at).second; });
      return behind;
    });
  }

  // The values in the body that this one holds numbers of.
  std::vector<ValueId> made_of(ScopeId body, ValueId id, Passing passing) {
    const Value& value = graph_.value(id);
    if (!is_inside(value.scope, body) || value.type.element == Element::kBool) return {};
    const NodeId producer = value.producer;
    if (value.is_scope_input || producer == kNone || is_hollow(graph_.node(producer)))
      return values_behind(graph_, id, Through::kBodies);
    const Node& node = graph_.node(producer);
    if (!context_.is_standard(node)) return {};
    std::vector<ValueId> found;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && carries(node, i, passing)) found.push_back(node.inputs[i]);
    }
    return found;
  }

  bool is_inside(ScopeId scope, ScopeId body) const {
    while (scope != kNone && scope != body) {
      const NodeId owner = graph_.scope(scope).owner;
      scope = owner == kNone ? kNone : graph_.node(owner).scope;
    }
    return scope == body;
  }

  bool carries(const Node& node, std::size_t input, Passing passing) {
    if (is_scatter(node)) return input == 0 || input == 2;
    if (moves_values(node.op)) return input == 0 || hands_on_all(node.op);
    const Kind kind = kind_of(node.op);
    if (kind == Kind::kProduct) {
      if (node.op == "Gemm" && input == 2) return true;  // what is added to
      return passing == Passing::kTransforms && keeps_what_it_multiplies(node, input);
    }
    if (passing == Passing::kSums) return kind == Kind::kElementwise || adds_up(node.op);
    constexpr std::array<std::string_view, 5> kLinear{"Add", "Cast", "Mean", "Sub", "Sum"};
    return is_among(kLinear, node) || is_scaling(node);
  }

  bool is_scaling(const Node& node) const {
    return (node.op == "Mul" || node.op == "Div") &&
           std::ranges::any_of(node.inputs, [&](ValueId in) { return context_.is_constant(in); });
  }

  // A product by a matrix that is computed (transitions), or by a constant one that leaves about as
  // much as there was.
  bool keeps_what_it_multiplies(const Node& node, std::size_t input) {
    constexpr std::array<std::string_view, 3> kMatrices{"Einsum", "Gemm", "MatMul"};
    if (!is_among(kMatrices, node) || node.inputs.size() < 2 || input > 1) return false;
    const ValueId other = node.inputs[1 - input];
    if (other == kNone) return false;
    if (!context_.is_constant(other)) return context_.is_open(other);
    const auto [found, is_new] = lasting_.try_emplace(other, false);
    if (is_new) found->second = node.op != "Einsum" && is_lasting(other);
    return found->second;
  }

  // Is it a square matrix whose powers neither fade soon nor soon leave every range?
  bool is_lasting(ValueId matrix) {
    constexpr std::size_t kLargest = 1024;
    constexpr int kTurns = 64;  // of which the second half counts
    constexpr double kNearOne = 0.1;
    if (shapes_.empty()) shapes_ = known_shapes(graph_);
    const auto& shape = shapes_[static_cast<std::size_t>(matrix)];
    if (!shape || shape->size() != 2 || shape->front() != shape->back()) return false;
    const auto size = static_cast<std::size_t>(shape->front());
    if (size == 0 || size > kLargest) return false;
    const std::vector<float> values = context_.constants.floats(matrix);
    if (values.size() != size * size) return false;
    std::vector<double> vector(size);
    for (std::size_t i = 0; i < size; ++i) vector[i] = std::cos(static_cast<double>(i * i));
    double growth = 0;  // logarithm
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<double> next(size);
      for (std::size_t row = 0; row < size; ++row) {
        for (std::size_t i = 0; i < size; ++i) next[row] += values[row * size + i] * vector[i];
      }
      const double before = norm(vector);
      const double after = norm(next);
      if (!(before > 0) || !(after > 0)) return false;
      if (turn >= kTurns / 2) growth += std::log(after / before);
      for (double& each : next) each /= after;
      vector = std::move(next);
    }
    return std::abs(std::exp(2 * growth / kTurns) - 1) <= kNearOne;
  }

  static double norm(const std::vector<double>& vector) {
    double sum = 0;
    for (const double each : vector) sum += each * each;
    return std::sqrt(sum);
  }

  const Node* maker(ValueId id) const {
    const Node* node = context_.maker(id);
    const bool is_made_here = node != nullptr && !graph_.value(id).is_scope_input;
    return is_made_here && !is_hollow(*node) ? node : nullptr;
  }

  // Is it a sum, or a product with something?
  bool is_result_of_sum(ValueId id) const {
    constexpr std::array<std::string_view, 8> kArithmetic{"Add", "Div", "Gemm", "Mean",
                                                          "Mul", "Pow", "Sub",  "Sum"};
    constexpr std::array<std::string_view, 2> kResampling{"Resize", "Upsample"};
    const Node* node = maker(id);
    if (node == nullptr) return false;
    if (is_scatter(*node)) {
      const std::string reduction = graph_.attribute_text(*node, "reduction");
      return reduction == "add" || reduction == "mul";
    }
    return is_among(kArithmetic, *node) || (adds_up(node->op) && !is_among(kResampling, *node));
  }

  void keep(const State& state, const std::vector<ValueId>& ways) {
    const std::unordered_set<ValueId> on_way(ways.begin(), ways.end());
    for (const ValueId id : ways) {
      context_.keep_value(id, kStateWhy);
      if (const Node* node = maker(id)) {
        context_.keep_node(context_.id_of(*node), kStateWhy);
        keep_factors(*node, on_way);
      }
    }
    for (const ValueId id : {state.entry, state.result}) keep_differences(id);
  }

  // A gate or a decay near one: what it lacks is what the state loses, and the low type holds
  // little of that.
  void keep_factors(const Node& node, const std::unordered_set<ValueId>& on_way) {
    constexpr std::array<std::string_view, 3> kScales{"Div", "Mul", "Pow"};
    if (!is_among(kScales, node)) return;
    for (const ValueId in : node.inputs) {
      if (in == kNone || on_way.contains(in) || !context_.is_open(in)) continue;
      walk_back(graph_, {in}, {}, [&](ValueId id, const Node* made_by) {
        if (!context_.is_open(id)) return Onward::kStop;
        const Kind kind = made_by == nullptr ? Kind::kMoves : kind_of(made_by->op);
        if (kind == Kind::kProduct || kind == Kind::kOther) return Onward::kStop;
        context_.keep_value(id, kFactorWhy);
        if (made_by != nullptr) context_.keep_node(context_.id_of(*made_by), kFactorWhy);
        keep_differences(id);
        const bool goes_on = made_by == nullptr || kind == Kind::kMoves || is_linear(*made_by);
        return goes_on ? Onward::kAll : Onward::kStop;
      });
    }
  }

  // Behind an activation a rounded operand is an error of the size that products have.
  static bool is_linear(const Node& node) {
    constexpr std::array<std::string_view, 6> kLinear{"Add", "Cast", "Div", "Mul", "Sub", "Sum"};
    return is_among(kLinear, node);
  }

  // 1 - gate, x - mean: what is left of two that are near each other.
  void keep_differences(ValueId id) const {
    for (const Use& use : graph_.value(id).uses) {
      if (use.node == kNone) continue;
      const Node& reader = graph_.node(use.node);
      if (!context_.is_standard(reader)) continue;
      if (reader.op == "Sub") context_.keep_node(use.node, kStateWhy);
      if (reader.op != "Neg" || reader.outputs.empty() || reader.outputs[0] == kNone) continue;
      for (const Use& next : graph_.value(reader.outputs[0]).uses) {
        if (next.node == kNone || graph_.node(next.node).op != "Add") continue;
        context_.keep_node(use.node, kStateWhy);
        context_.keep_node(next.node, kStateWhy);
      }
    }
  }

  const PinContext& context_;
  const Graph& graph_;
  std::unordered_map<ValueId, bool> lasting_;                     // matrices
  std::vector<std::optional<std::vector<std::int64_t>>> shapes_;  // read when a matrix asks
};

}  // namespace

void pin_states(const PinContext& context) {
  States(context).run();
}

}  // namespace mezzo::convert
