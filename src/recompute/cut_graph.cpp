#include "recompute/cut_graph.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "casting/shadow.h"

namespace mezzo::recomputation {
namespace {

/// Stands between the part and an outward edge. While it is open the engine finds nothing behind
/// it; joined, it hands gradients on, for a backward pass of the backward pass.
class CutNode final : public Node {
 public:
  explicit CutNode(const Edge& outward) : Node(torch::autograd::edge_list{outward}) {
    input_metadata_.push_back(outward.function->input_metadata(outward.input_nr));
    open();
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "MezzoRecomputedInput"; }

  // The node's place in the order of nodes stays that of the joined one.
  void open() { joined_.swap(next_edges_); }
  void join() { joined_.swap(next_edges_); }

 private:
  torch::autograd::edge_list joined_;
};

bool is_same(const Edge& one, const Edge& other) {
  return one.function == other.function && one.input_nr == other.input_nr;
}

const Node* target_of(const Edge& edge) {
  const Node* node = edge.function.get();
  if (dynamic_cast<const casting::ShadowNode*>(node) == nullptr) return node;
  return node->next_edge(0).function.get();
}

}  // namespace

GraphMark::GraphMark()
    : sequence_(at::sequence_number::peek()), thread_(at::RecordFunction::currentThreadId()) {}

bool GraphMark::is_before(const Node& node) const {
  return node.thread_id() == thread_ && node.sequence_nr() >= sequence_;
}

GraphPart::GraphPart(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                     const GraphMark& mark)
    : mark_(mark) {
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.grad_fn()) behind_inputs_.insert(input.grad_fn().get());
  }
  std::vector<Node*> waiting;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    look(torch::autograd::impl::gradient_edge(output), waiting);
    while (!waiting.empty()) {
      Node* node = waiting.back();
      waiting.pop_back();
      for (const Edge& edge : std::as_const(*node).next_edges()) look(edge, waiting);
    }
  }
}

bool GraphPart::is_outside(const Node& node) const {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr ||
         dynamic_cast<const casting::ShadowNode*>(&node) != nullptr ||
         behind_inputs_.contains(&node) || !mark_.is_before(node);
}

void GraphPart::look(const Edge& edge, std::vector<Node*>& waiting) {
  if (!edge.is_valid()) return;
  if (is_outside(*edge.function)) {
    if (index_of(edge) == outward_.size()) outward_.push_back({edge, target_of(edge)});
  } else if (seen_.insert(edge.function.get()).second) {
    inside_.push_back(edge.function);
    waiting.push_back(edge.function.get());
  }
}

std::size_t GraphPart::index_of(const Edge& edge) const {
  const auto found = std::ranges::find_if(
      outward_, [&](const OutwardEdge& outward) { return is_same(outward.edge, edge); });
  return static_cast<std::size_t>(found - outward_.begin());
}

std::vector<at::Tensor> GraphPart::gradients(const std::vector<Edge>& roots,
                                             const std::vector<at::Tensor>& root_gradients,
                                             bool create_graph) {
  std::vector<NodePointer> cuts;
  std::vector<Edge> wanted;
  cuts.reserve(outward_.size());
  wanted.reserve(outward_.size());
  for (const OutwardEdge& outward : outward_) {
    cuts.push_back(make_node<CutNode>(outward.edge));
    wanted.emplace_back(cuts.back(), 0);
  }
  const auto cut = [&](const Edge& edge) {
    const std::size_t index = edge.is_valid() ? index_of(edge) : outward_.size();
    return index == outward_.size() ? edge : wanted[index];
  };
  for (const NodePointer& node : inside_) {
    for (Edge& edge : node->next_edges()) edge = cut(edge);
  }
  std::vector<Edge> starts;
  starts.reserve(roots.size());
  for (const Edge& root : roots) starts.push_back(cut(root));

  std::vector<at::Tensor> gradients(wanted.size());
  if (!wanted.empty() && !starts.empty()) {
    gradients = torch::autograd::Engine::get_default_engine().execute(
        starts, root_gradients, /*keep_graph=*/create_graph, create_graph,
        /*accumulate_grad=*/false, wanted);
  }
  if (create_graph) {
    for (const NodePointer& node : cuts) static_cast<CutNode&>(*node).join();
  }
  return gradients;
}

}  // namespace mezzo::recomputation
