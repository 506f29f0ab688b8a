// The part of an autograd graph that one run of a function added.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/autograd_node.h"
#include "core/torch.h"

namespace mezzo::recomputation {

using torch::autograd::Edge;
using torch::autograd::Node;

/// A place in time: nodes that this thread makes afterwards are younger.
struct GraphMark {
  GraphMark();
  bool is_before(const Node& node) const;

 private:
  std::uint64_t sequence_;
  std::uint64_t thread_;
};

/// Where gradients that leave the part go: into accumulators of weights, into casts of weights,
/// into inputs and into whatever else was there before.
struct OutwardEdge {
  Edge edge;
  const Node* target;  // behind casts of weights: the accumulator
};

/// A part of a graph, found from the outputs of a run.
class GraphPart {
 public:
  /// @param inputs  of the run: the nodes behind them are outside, whoever made them
  GraphPart(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
            const GraphMark& mark);

  const std::vector<OutwardEdge>& outward() const noexcept { return outward_; }

  /// The gradients that leave the part by each outward edge, given those of some outputs. Nothing
  /// outside runs. With `create_graph` the gradients have a history, which leads outside.
  std::vector<at::Tensor> gradients(const std::vector<Edge>& roots,
                                    const std::vector<at::Tensor>& root_gradients,
                                    bool create_graph);

 private:
  std::size_t index_of(const Edge& edge) const;
  bool is_outside(const Node& node) const;
  void look(const Edge& edge, std::vector<Node*>& waiting);

  GraphMark mark_;
  std::unordered_set<const Node*> behind_inputs_;
  std::unordered_set<const Node*> seen_;
  std::vector<NodePointer> inside_;
  std::vector<OutwardEdge> outward_;
};

}  // namespace mezzo::recomputation
