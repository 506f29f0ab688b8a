#include "convert/graph/constants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kSmall = 64;

// A Constant node inside a function may take its value from the caller's attributes.
bool refers(const Node& node) {
  return std::ranges::any_of(node.message->fields(), [](Field& field) {
    return field.number == field::node::kAttribute &&
           !field.open().text(field::attribute::kReference).empty();
  });
}

// Magnitudes are compared as the integers of their bits, which have the same order. Compilers make
// vector code of short loops over integers, and not of long ones, nor of those over floats.
constexpr std::int32_t kInfinity = 0x7F800000;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;

struct Extremes {
  std::int32_t largest = 0;                                       // may be infinite, or NaN
  std::int32_t least = std::numeric_limits<std::int32_t>::max();  // of values other than zero
};

Extremes extremes_of(std::span<const float> values) {
  Extremes found;
  // One below its magnitude, so that zero becomes the largest number of all.
  constexpr std::uint32_t kBelow = 0xFFFFFFFF;
  constexpr std::uint32_t kSign = 0x80000000;
  std::int32_t least = found.least;
  for (const float value : values) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & kMagnitude;
    const auto up = static_cast<std::int32_t>(magnitude);
    const auto down = static_cast<std::int32_t>((magnitude + kBelow) ^ kSign);
    found.largest = up > found.largest ? up : found.largest;
    least = down < least ? down : least;
  }
  const std::uint32_t magnitude = (static_cast<std::uint32_t>(least) ^ kSign) - kBelow;
  if (magnitude != 0) found.least = static_cast<std::int32_t>(magnitude);
  return found;
}

void count_rounded(std::span<const float> values, std::int32_t overflow, std::int32_t vanish,
                   ConstantFacts& facts) {
  std::uint32_t overflowing = 0;
  std::uint32_t vanishing = 0;
  std::uint32_t beyond = 0;
  std::uint32_t nan = 0;
  std::uint32_t zero = 0;
  for (const float value : values) {
    const auto magnitude =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & kMagnitude);
    overflowing += magnitude >= overflow ? 1U : 0U;
    vanishing += magnitude <= vanish ? 1U : 0U;
    beyond += magnitude >= kInfinity ? 1U : 0U;
    nan += magnitude > kInfinity ? 1U : 0U;
    zero += magnitude == 0 ? 1U : 0U;
  }
  facts.overflowing += overflowing - beyond;
  facts.vanishing += vanishing - zero;
  facts.infinite += beyond - nan;
  facts.nan += nan;
}

std::int32_t largest_finite(std::span<const float> values) {
  std::int32_t largest = 0;
  for (const float value : values) {
    const auto magnitude =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & kMagnitude);
    if (magnitude < kInfinity) largest = std::max(largest, magnitude);
  }
  return largest;
}

// In one pass most of the time: only blocks with values that rounding would lose are counted.
void count_values(std::span<const float> values, Element low, ConstantFacts& facts) {
  constexpr std::size_t kBlock = 4096;
  const auto overflow = std::bit_cast<std::int32_t>(static_cast<float>(overflows_at(low)));
  const auto vanish = std::bit_cast<std::int32_t>(static_cast<float>(vanishes_at(low)));
  facts.count += values.size();
  for (; !values.empty(); values = values.subspan(std::min(kBlock, values.size()))) {
    const std::span<const float> block = values.first(std::min(kBlock, values.size()));
    const Extremes found = extremes_of(block);
    if (found.largest >= overflow || found.least <= vanish) {
      count_rounded(block, overflow, vanish, facts);
    }
    const std::int32_t largest = found.largest < kInfinity ? found.largest : largest_finite(block);
    facts.largest = std::max<double>(facts.largest, std::bit_cast<float>(largest));
    if (found.least >= kInfinity) continue;
    const double least = std::bit_cast<float>(found.least);
    if (facts.smallest == 0 || least < facts.smallest) facts.smallest = least;
  }
}

}  // namespace

std::optional<std::vector<float>> listed_floats(const Graph& graph, const Node& node) {
  if (const Message* one = graph.attribute(node, "value_float")) {
    const auto bits = static_cast<std::uint32_t>(one->number(field::attribute::kFloat));
    return std::vector<float>{std::bit_cast<float>(bits)};
  }
  const Message* list = graph.attribute(node, "value_floats");
  if (list == nullptr) return std::nullopt;
  return repeated_floats(*list, field::attribute::kFloats);
}

bool Constants::is_constant(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.type != tensor_of(Element::kFloat)) return false;
  const Message* tensor = graph_.constant(id);
  // An input's type is the declared one; the initializer behind it may hold anything.
  const bool holds_floats = tensor != nullptr && is_float_tensor(*tensor);
  if (value.producer == kNone) return value.origin != Origin::kSparseInitializer && holds_floats;
  const Node& node = graph_.node(value.producer);
  if (node.op != "Constant" || !node.domain.empty() || value.output != 0 || refers(node))
    return false;
  if (tensor != nullptr) return holds_floats;
  return graph_.attribute(node, "value_float") != nullptr ||
         graph_.attribute(node, "value_floats") != nullptr;
}

ConstantFacts Constants::measure(const Tensor& tensor) const {
  ConstantFacts facts;
  for_each_chunk(tensor, [&](std::span<const float> chunk) { count_values(chunk, low_, facts); });
  graph_.document().release(tensor.raw);
  return facts;
}

ConstantFacts Constants::facts_of(const Message& tensor) const {
  return measure(read_tensor(graph_.document(), tensor));
}

ConstantFacts Constants::facts_of(std::span<const float> values) const {
  ConstantFacts facts;
  count_values(values, low_, facts);
  return facts;
}

const ConstantFacts& Constants::facts(ValueId id) {
  const auto [found, is_new] = facts_.try_emplace(id);
  if (!is_new) return found->second;
  ConstantFacts& facts = found->second;
  if (const Message* message = graph_.constant(id)) {
    const Tensor tensor = read_tensor(graph_.document(), *message);
    const auto place = graph_.document().place_of(tensor.raw);
    if (measured_ == nullptr || !place) return facts = measure(tensor);
    const auto known = measured_->find({*place, tensor.count});
    if (known != measured_->end()) return facts = known->second;
    facts = measure(tensor);
    measured_->emplace(std::pair(*place, tensor.count), facts);
  } else if (const auto listed = listed_floats(graph_, graph_.node(graph_.value(id).producer))) {
    count_values(*listed, low_, facts);
  }
  return facts;
}

std::pair<double, double> Constants::ends(ValueId id) {
  const auto [found, is_new] = ends_.try_emplace(id, 0, 0);
  std::pair<double, double>& ends = found->second;
  if (!is_new) return ends;
  const auto look = [&](std::span<const float> values) {
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      ends = {std::min<double>(ends.first, value), std::max<double>(ends.second, value)};
    }
  };
  if (const Message* message = graph_.constant(id)) {
    for_each_chunk(read_tensor(graph_.document(), *message), look);
  } else if (const auto listed = listed_floats(graph_, graph_.node(graph_.value(id).producer))) {
    look(*listed);
  }
  return ends;
}

std::uint64_t Constants::count(ValueId id) const {
  if (const Message* message = graph_.constant(id)) {
    std::uint64_t count = 1;
    for (const std::int64_t dim : repeated_integers(*message, field::tensor::kDims)) {
      count *= static_cast<std::uint64_t>(std::max<std::int64_t>(dim, 0));
    }
    return count;
  }
  const auto listed = listed_floats(graph_, graph_.node(graph_.value(id).producer));
  return listed ? listed->size() : 0;
}

std::vector<float> Constants::floats(ValueId id) const {
  std::vector<float> values;
  if (const Message* message = graph_.constant(id)) {
    for_each_chunk(read_tensor(graph_.document(), *message), [&](std::span<const float> chunk) {
      values.insert(values.end(), chunk.begin(), chunk.end());
    });
  } else if (auto listed = listed_floats(graph_, graph_.node(graph_.value(id).producer))) {
    values = std::move(*listed);
  }
  return values;
}

std::vector<double> Constants::values(ValueId id) const {
  if (const Message* message = graph_.constant(id)) {
    return small_values(read_tensor(graph_.document(), *message), kSmall);
  }
  const auto listed = listed_floats(graph_, graph_.node(graph_.value(id).producer));
  if (!listed || listed->size() > kSmall) return {};
  return {listed->begin(), listed->end()};
}

}  // namespace mezzo::convert
