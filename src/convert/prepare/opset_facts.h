// Facts about the values of an old model while it is raised.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "convert/graph/graph.h"
#include "convert/graph/shape_rules.h"

namespace mezzo::convert {

/// Facts about the nodes of old opsets, as the model was read: taken before anything is edited. A
/// function's node is there once per call, and what differs between calls is not known.
class NodeFacts {
 public:
  explicit NodeFacts(const Graph&);

  /// The shape of an input, -1 if a dimension is open.
  std::optional<Dims> shape(const Message& node, std::size_t input) const;
  /// The values of an input that is a constant of a few numbers.
  std::optional<std::vector<double>> numbers(const Message& node, std::size_t input) const;
  /// The element type of an output that is a tensor.
  std::optional<Element> element(const Message& node, std::size_t output) const;
  /// May anything read that output?
  bool is_read(const Message& node, std::size_t output) const;

 private:
  struct Known {
    std::vector<std::optional<Dims>> shapes;                  // of inputs
    std::vector<std::optional<std::vector<double>>> numbers;  // that inputs are
    std::vector<std::optional<Element>> elements;             // of outputs
    std::vector<bool> reads;                                  // of outputs
  };
  static void agree(Known& with, const Known& other);

  std::unordered_map<const Message*, Known> known_;
};

}  // namespace mezzo::convert
