// The error that each node adds by itself: its inputs as float32 computes them, rounded, its
// result rounded, compared with the float32 result.
#pragma once

#include <vector>

#include "convert/engine/difference.h"
#include "convert/engine/operator_call.h"
#include "convert/graph/graph.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// Where a conversion rounds: per node, per input and per output.
struct Rounding {
  Element low = Element::kFloat16;
  std::vector<std::vector<bool>> inputs, outputs;

  bool touches(NodeId node) const;
};

/// Collects the errors of single nodes while the float32 model is evaluated.
class LocalErrors {
 public:
  /// All must outlive this.
  LocalErrors(const OperatorLibrary& library, const Graph& graph, const Rounding& rounding)
      : library_(library), graph_(graph), rounding_(rounding), sums_(graph.nodes.size()) {}

  /// `results` are what `call`, of this node, gave; the node is computed once more with rounding.
  /// Nodes that cannot be computed from rounded inputs are left out.
  void add(const Node& node, const OperatorCall& call, const std::vector<Array>& results);

  /// Over everything that was added, worst first: what is not finite, then by SQNR; equal ones in
  /// the order of the graph's nodes.
  std::vector<LocalError> sorted() const;

 private:
  struct Sum {
    Difference difference;
    bool is_seen = false;
  };

  const OperatorLibrary& library_;
  const Graph& graph_;
  const Rounding& rounding_;
  std::vector<Sum> sums_;
};

}  // namespace mezzo::convert
