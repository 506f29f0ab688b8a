// What is known about the values of constants: ranges, and what rounding would do to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/graph.h"

namespace mezzo::convert {

/// Counts over the values of one float32 constant, for one low type.
struct ConstantFacts {
  std::uint64_t count = 0;
  double largest = 0;             // finite magnitude
  double smallest = 0;            // non-zero magnitude; 0: there is none
  std::uint64_t overflowing = 0;  // finite values that rounding makes infinite
  std::uint64_t vanishing = 0;    // non-zero values that rounding makes zero
  std::uint64_t infinite = 0, nan = 0;
};

/// The float32 constants of a graph: initializers and Constant nodes. Measured when first asked.
class Constants {
 public:
  Constants(const Graph& graph, Element low) : graph_(graph), low_(low) {}

  /// A float32 tensor whose values stand in the model and that no caller can replace.
  bool is_constant(ValueId) const;
  const ConstantFacts& facts(ValueId);
  /// Number of elements without reading them.
  std::uint64_t count(ValueId) const;
  /// The values of a small constant (up to 64); empty for larger ones.
  std::vector<double> values(ValueId) const;

 private:
  const Graph& graph_;
  Element low_;
  std::unordered_map<ValueId, ConstantFacts> facts_;
};

/// The values of a Constant node's value_float or value_floats; nothing for other nodes.
std::optional<std::vector<float>> listed_floats(const Graph&, const Node&);

/// Why rounding this constant would change what input `index` of `node` computes; empty: it would
/// not. Follows the constant's role: weight, statistic, epsilon, mask sentinel, clip bound.
std::string objection(const Graph&, Constants&, ValueId constant, const Node& node, int index,
                      Element low);

}  // namespace mezzo::convert
