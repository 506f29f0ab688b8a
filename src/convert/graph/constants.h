// Facts about the values of constants: ranges, and what rounding would do to them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/graph/graph.h"
#include "convert/onnx/low.h"

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

/// The counted facts, by where the values stand in the files and how many they are: the same for
/// every reading of one model, whatever opset it is raised to. For one low type.
using MeasuredFacts = std::map<std::pair<Document::Place, std::uint64_t>, ConstantFacts>;

/// The float32 constants of a graph: initializers and Constant nodes. Measured when first asked.
class Constants {
 public:
  /// `measured` is asked first and added to, where it is given; it must outlive this object.
  Constants(const Graph& graph, Element low, MeasuredFacts* measured = nullptr)
      : graph_(graph), low_(low), measured_(measured) {}

  /// A float32 tensor whose values stand in the model and that no caller can replace.
  bool is_constant(ValueId) const;
  const ConstantFacts& facts(ValueId);
  /// For float32 values that are no constant of the graph: a tensor of a default or an attribute.
  ConstantFacts facts_of(const Message& tensor) const;
  ConstantFacts facts_of(std::span<const float>) const;
  /// The lowest and the highest finite value, or 0 if that is beyond. Read when first asked.
  std::pair<double, double> ends(ValueId);
  /// Number of elements without reading them.
  std::uint64_t count(ValueId) const;
  /// The values of a small constant (up to 64); empty for larger ones.
  std::vector<double> values(ValueId) const;
  /// All values.
  std::vector<float> floats(ValueId) const;

 private:
  ConstantFacts measure(const Tensor&) const;

  const Graph& graph_;
  Element low_;
  MeasuredFacts* measured_;
  std::unordered_map<ValueId, ConstantFacts> facts_;
  std::unordered_map<ValueId, std::pair<double, double>> ends_;
};

/// The values of a Constant node's value_float or value_floats; nothing for other nodes.
std::optional<std::vector<float>> listed_floats(const Graph&, const Node&);

}  // namespace mezzo::convert
