// What each node adds to the error by itself: its inputs as float32 computes them, rounded, its
// result rounded, compared with the float32 result.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "convert/decide.h"
#include "convert/metrics.h"
#include "convert/operator_call.h"

namespace mezzo::convert {

/// Where a conversion rounds: per node, per input and per output.
struct Rounding {
  Element low = Element::kFloat16;
  std::vector<std::vector<bool>> inputs, outputs;

  bool touches(NodeId node) const;
};

Rounding rounding_of(const Graph&, const Decisions&, const ConvertPolicy&);

/// "SQNR 31.2 dB, 0.004 of its range", or that it is not finite.
std::string text_of(const LocalError&);

/// Says of decisions about `kept` nodes what low would cost there.
void tell_cost_of_low(const std::vector<LocalError>&, const std::set<std::string>& kept,
                      std::vector<Decision>& decisions);

/// Collects the errors of single nodes while the float32 model is evaluated.
class LocalErrors {
 public:
  /// All must outlive this.
  LocalErrors(const OperatorLibrary& library, const Graph& graph, const Rounding& rounding)
      : library_(library), graph_(graph), rounding_(rounding), sums_(graph.nodes.size()) {}

  /// `results` are what `call`, of this node, gave; the node is computed once more with rounding.
  /// What cannot be computed from rounded inputs is left out.
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
