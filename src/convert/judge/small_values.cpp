#include "convert/judge/small_values.h"

#include <algorithm>

#include "convert/judge/judge.h"
#include "convert/onnx/low.h"

namespace mezzo::convert {

ValueRanges without_small(const ValueRanges& ranges, Element low) {
  ValueRanges rest = ranges;
  std::erase_if(rest, [&](const auto& range) {
    return range.second != 0 && range.second < least_magnitude(low);
  });
  return rest;
}

std::size_t low_products(const Graph& graph, const ConvertPolicy& policy,
                         const Decisions& decisions) {
  std::size_t count = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!node.is_described() || policy.default_class_of(node.qualified_name()) != CastClass::kLow)
      continue;
    const auto& variables = decisions.map.variables[n];
    const std::size_t primary = primary_variable(graph, decisions.map, static_cast<NodeId>(n));
    const bool is_bound = primary < variables.size() && variables[primary] != kNoSlot;
    count += is_bound && decisions.is_low(variables[primary]) ? 1 : 0;
  }
  return count;
}

bool hardly_differ(const std::vector<OutputError>& outputs, double accepted) {
  constexpr double kShare = 0.25;
  constexpr double kSameDirection = 0.999;
  return largest_error(outputs) <= kShare * accepted &&
         std::ranges::all_of(
             outputs, [](const OutputError& output) { return output.cosine >= kSameDirection; });
}

}  // namespace mezzo::convert
