#include "convert/decide/pins/common_offsets.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convert/decide/pins/joined_norms.h"
#include "convert/graph/body_ways.h"
#include "convert/graph/sizes.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

/// An offset counts from so many times the spread on: below, rounding costs what it costs anyway.
constexpr double kManyTimes = 8;
/// Numbers of which nothing is known spread like this, as layers leave them.
constexpr double kUsualSpread = 1;
/// Larger constants are tables of embeddings and weights, which training has centred.
constexpr std::uint64_t kMostLooked = 1U << 22U;

// The value that another one is, moved.
ValueId unmoved(const Graph& graph, ValueId id) {
  return walk_back(graph, {id}, {},
                   [](ValueId, const Node* node) {
                     const bool is_moved = node != nullptr && moves_values(node->op);
                     return is_moved ? Onward::kFirst : Onward::kStop;
                   })
      .back();
}

bool is_sum_over(const Node& node) {
  return node.op == "GlobalAveragePool" || node.op == "ReduceMean" || node.op == "ReduceSum";
}

}  // namespace

bool takes_mean_away(const PinContext& context, const Node& node) {
  if (node.op != "Sub" || node.inputs.size() != 2) return false;
  if (node.inputs[0] == kNone || node.inputs[1] == kNone) return false;
  const Graph& graph = context.graph;
  if (centred_by(graph, context.constants, node) != kNone) return true;
  // The sum over what is counted, or a mean that is moved.
  ValueId averaged = kNone;
  walk_back(graph, {node.inputs[1]}, {}, [&](ValueId, const Node* made_by) {
    if (made_by == nullptr || averaged != kNone) return Onward::kStop;
    if (is_sum_over(*made_by)) averaged = made_by->inputs[0];
    const bool is_scaled = made_by->op == "Mul" || made_by->op == "Div";
    const bool goes_on = averaged == kNone && (is_scaled || moves_values(made_by->op));
    return goes_on ? Onward::kFirst : Onward::kStop;
  });
  return averaged != kNone && unmoved(graph, averaged) == unmoved(graph, node.inputs[0]);
}

CommonOffsets::CommonOffsets(const PinContext& context)
    : context_(context), graph_(context.graph), offsets_(graph_.values.size(), kNoOffset) {
  for (const ValueId id : graph_.scope(0).inputs) {
    const Value& value = graph_.value(id);
    const bool is_low =
        context.policy.io_label(std::string(value.name)) == Label::kLow;  // and has no digits
    if (context.is_open(id) && value.initializer == nullptr && !is_low) add(id, kGivenOffset);
  }
  // Twice, for what one turn of a loop gives the next.
  flow(0);
  flow(0);
}

void CommonOffsets::add(ValueId id, std::uint8_t offset) {
  if (id == kNone || offset == kNoOffset) return;
  std::uint8_t& known = offsets_[static_cast<std::size_t>(id)];
  known = static_cast<std::uint8_t>(known | offset);
}

void CommonOffsets::flow(ScopeId scope) {
  for (const NodeId id : graph_.scope(scope).ordered) {
    const Node& node = graph_.node(id);
    if (is_hollow(node)) {
      for (const Body& body : node.bodies) flow_into(body.scope);
      if (node.instance != kNone) flow_into(node.instance);
      for (const ValueId out : node.outputs) {
        if (out == kNone) continue;
        for (const ValueId in : values_behind(graph_, out, Through::kBodies)) add(out, of(in));
      }
    } else if (context_.is_standard(node)) {
      const std::uint8_t made = made_by(node);
      for (const ValueId out : node.outputs) add(out, made);
    }
  }
}

void CommonOffsets::flow_into(ScopeId scope) {
  for (const ValueId entry : graph_.scope(scope).inputs) {
    for (const ValueId in : values_behind(graph_, entry, Through::kBodies)) add(entry, of(in));
  }
  flow(scope);
}

std::uint8_t CommonOffsets::made_by(const Node& node) {
  const ValueId first = node.inputs.empty() ? kNone : node.inputs[0];
  const Kind kind = kind_of(node.op);
  if (kind == Kind::kProduct || has_scale(node)) return of_bias(node);
  if (node.op == "Cast" && first != kNone && !is_float_based(graph_.value(first).type)) {
    const Element from = graph_.value(first).type.element;
    return from == Element::kBool ? kNoOffset : kGivenOffset;
  }
  if (node.op == "Sub" && takes_mean_away(context_, node)) return kNoOffset;
  constexpr std::array<std::string_view, 4> kSums{"Add", "Mean", "Sub", "Sum"};
  if (std::ranges::find(kSums, node.op) != kSums.end()) return of_addends(node);
  if (node.op == "Mul" || node.op == "Div") return of_common(node);
  if (node.op == "Gather" && context_.is_constant(first)) return of_table(first);
  if (kind == Kind::kElementwise || hands_on_all(node.op)) return of_all(node);
  return kind == Kind::kMoves || adds_up(node.op) ? of(first) : std::uint8_t{kNoOffset};
}

std::uint8_t CommonOffsets::of_all(const Node& node) const {
  unsigned offset = kNoOffset;
  for (const ValueId in : node.inputs) offset |= of(in);
  return static_cast<std::uint8_t>(offset);
}

// A factor without an offset, as a mask or a gate, leaves none.
std::uint8_t CommonOffsets::of_common(const Node& node) const {
  unsigned offset = of_all(node);
  for (const ValueId in : node.inputs) {
    const bool has_none = context_.is_open(in) && of(in) == kNoOffset;
    if (has_none) offset = kNoOffset;
  }
  return static_cast<std::uint8_t>(offset);
}

std::uint8_t CommonOffsets::of_addends(const Node& node) {
  unsigned offset = of_all(node);
  for (const ValueId constant : node.inputs) {
    if (!context_.is_constant(constant)) continue;
    double gain = 0;
    for (const ValueId other : node.inputs) {
      if (context_.is_open(other)) gain = std::max(gain, gain_before(other));
    }
    offset |= beside(constant, gain);
  }
  return static_cast<std::uint8_t>(offset);
}

std::uint8_t CommonOffsets::of_bias(const Node& node) {
  constexpr std::array<std::string_view, 3> kProducts{"Conv", "ConvTranspose", "Gemm"};
  constexpr std::size_t kBias = 2;
  const bool is_norm = has_scale(node);
  const bool may_have_one = is_norm || std::ranges::find(kProducts, node.op) != kProducts.end();
  if (!may_have_one || node.inputs.size() <= kBias || !context_.is_constant(node.inputs[kBias]))
    return kNoOffset;
  // Weights are read only beside a bias that might be an offset.
  if (beside(node.inputs[kBias], 0) == kNoOffset) return kNoOffset;
  return beside(node.inputs[kBias], is_norm ? size_of_constant(node.inputs[1]) : gain_of(node));
}

// The offset that a constant is to numbers that spread like this.
std::uint8_t CommonOffsets::beside(ValueId constant, double gain) {
  const std::optional<Moments>& known = moments(constant);
  if (!known) return kNoOffset;
  const double mean = std::abs(known->mean);
  unsigned offset = kNoOffset;
  if (mean > kManyTimes * std::hypot(known->deviation, gain)) offset |= kOffsetOfRows;
  if (std::hypot(mean, known->deviation) > kManyTimes * gain) offset |= kOffsetOfChannels;
  return static_cast<std::uint8_t>(offset);
}

const std::optional<CommonOffsets::Moments>& CommonOffsets::moments(ValueId constant) {
  const auto [found, is_new] = moments_.try_emplace(constant);
  const std::uint64_t count = context_.constants.count(constant);
  if (!is_new || count == 0 || count > kMostLooked) return found->second;
  double sum = 0;
  double squares = 0;
  for (const float value : context_.constants.floats(constant)) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto n = static_cast<double>(count);
  const double variance = std::max(0.0, squares / n - (sum / n) * (sum / n));
  if (std::isfinite(squares)) found->second = Moments{sum / n, std::sqrt(variance)};
  return found->second;
}

// An embedding's rows: is what each has in common large beside what tells its numbers apart?
std::uint8_t CommonOffsets::of_table(ValueId table) {
  const auto [found, is_new] = tables_.try_emplace(table, kNoOffset);
  const std::uint64_t count = context_.constants.count(table);
  if (!is_new || count == 0 || count > kMostLooked) return found->second;
  if (shapes_.empty()) shapes_ = known_shapes(graph_);
  const auto& shape = shapes_[static_cast<std::size_t>(table)];
  if (!shape || shape->size() != 2 || shape->back() < 2) return found->second;
  const std::vector<float> values = context_.constants.floats(table);
  const auto width = static_cast<std::size_t>(shape->back());
  double means = 0;
  double variances = 0;
  for (std::size_t row = 0; row + width <= values.size(); row += width) {
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) {
      sum += values[row + i];
      squares += static_cast<double>(values[row + i]) * values[row + i];
    }
    const double mean = sum / static_cast<double>(width);
    means += mean * mean;
    variances += squares / static_cast<double>(width) - mean * mean;
  }
  if (means > kManyTimes * kManyTimes * std::max(variances, 0.0)) found->second = kOffsetOfRows;
  return found->second;
}

// The spread of what a value holds, where weights, factors and scales tell.
double CommonOffsets::gain_before(ValueId id) {
  double factor = 1;
  for (std::size_t i = 0; i < kFarthestWalk; ++i) {
    const Node* node = context_.maker(unmoved(graph_, id));
    if (node == nullptr) break;
    if (is_product(node->op)) return factor * gain_of(*node);
    if (has_scale(*node)) return factor * size_of_constant(node->inputs[1]);
    const bool is_multiplied = node->op == "Mul" && node->inputs.size() == 2;
    if (!is_multiplied) break;
    const std::size_t constant = context_.is_constant(node->inputs[0]) ? 0 : 1;
    if (!context_.is_constant(node->inputs[constant])) break;
    factor *= size_of_constant(node->inputs[constant]);
    id = node->inputs[1 - constant];
  }
  return factor * kUsualSpread;
}

// Is it a normalisation by constants?
bool CommonOffsets::has_scale(const Node& node) const {
  constexpr std::array<std::string_view, 5> kNorms{"BatchNormalization", "GroupNormalization",
                                                   "InstanceNormalization", "LayerNormalization",
                                                   "RMSNormalization"};
  return std::ranges::find(kNorms, node.op) != kNorms.end() && node.inputs.size() > 1 &&
         context_.is_constant(node.inputs[1]);
}

double CommonOffsets::size_of_constant(ValueId constant) {
  const std::optional<Moments>& known = moments(constant);
  return known ? std::hypot(known->mean, known->deviation) : kUsualSpread;
}

// The spread of a product's results for operands that spread as usual.
double CommonOffsets::gain_of(const Node& product) {
  if (product.inputs.size() < 2 || !context_.is_constant(product.inputs[1])) return kUsualSpread;
  const auto [found, is_new] = gains_.try_emplace(product.inputs[1], kUsualSpread);
  if (!is_new || context_.constants.count(product.inputs[1]) > kMostLooked) return found->second;
  if (shapes_.empty()) shapes_ = known_shapes(graph_);
  const auto& shape = shapes_[static_cast<std::size_t>(product.inputs[1])];
  if (!shape || shape->size() < 2) return found->second;
  const bool has_outputs_first =
      product.op == "Conv" || (product.op == "Gemm" && graph_.integer(product, "transB", 0) != 0);
  const std::int64_t outputs = product.op == "ConvTranspose" ? (*shape)[1]
                               : has_outputs_first           ? shape->front()
                                                             : shape->back();
  double squares = 0;
  for (const float value : context_.constants.floats(product.inputs[1]))
    squares += static_cast<double>(value) * value;
  if (outputs > 0 && std::isfinite(squares))
    found->second = std::sqrt(squares / static_cast<double>(outputs)) * kUsualSpread;
  return found->second;
}

}  // namespace mezzo::convert
