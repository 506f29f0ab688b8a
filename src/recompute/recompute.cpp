#include "mezzo/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

#include "casting/gradient_sums.h"
#include "recompute/cut_graph.h"
#include "recompute/surroundings.h"

namespace mezzo::recomputation {
namespace {

constexpr const char* kRecompute = "recompute";

/// A tensor with the version that the first run saw.
struct SeenTensor {
  at::Tensor tensor;
  std::uint32_t version;

  explicit SeenTensor(const at::Tensor& seen) : tensor(seen), version(seen._version()) {}

  void check(const char* what) const {
    if (tensor._version() == version) return;
    raise(kRecompute, what, " of sizes ", tensor.sizes(), " was written in place (version ",
          tensor._version(), ", was ", version,
          ") between the forward and the backward pass, which would run the function again on "
          "other values; call backward first, or hand in a clone");
  }
};

/// A weight behind an accumulator; undefined otherwise.
at::Tensor weight_behind(const Node* target) {
  const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(target);
  return accumulator == nullptr ? at::Tensor() : accumulator->variable;
}

/// The graph of a first run, as one node that runs it again.
class RecomputeNode final : public Node {
 public:
  using Again = std::function<std::vector<at::Tensor>()>;

  RecomputeNode(const GraphPart& part, std::vector<at::Tensor> inputs, Surroundings surroundings,
                Again again)
      : outward_(part.outward()), inputs_(std::move(inputs)) {
    torch::autograd::edge_list edges;
    for (const OutwardEdge& each : outward_) {
      edges.push_back(each.edge);
      const at::Tensor weight = weight_behind(each.target);
      if (weight.defined()) weights_.emplace_back(weight);
    }
    set_next_edges(std::move(edges));
    for (const at::Tensor& input : inputs_) {
      if (input.defined() && !input.is_inference()) seen_.emplace_back(input);
    }
    surroundings_.emplace(std::move(surroundings));
    again_ = std::move(again);
  }

  /// An output of the first run, which from now on leads to this node.
  at::Tensor take(const at::Tensor& output, std::size_t place) {
    at::Tensor taken = output.tensor_data();
    torch::autograd::impl::set_gradient_edge(taken, Edge(getptr(), add_input_metadata(taken)));
    places_.push_back(place);
    return taken;
  }

  std::string name() const override { return "MezzoRecompute"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const bool create_graph = at::GradMode::is_enabled();
    if (!again_) {
      raise(kRecompute,
            "a second backward pass through a part whose inputs were freed by the "
            "first; ask the first one for retain_graph");
    }
    for (const SeenTensor& each : seen_) each.check("an input");
    for (const SeenTensor& each : weights_) each.check("a weight");

    const GraphMark mark;
    std::vector<at::Tensor> outputs;
    {
      const Surroundings::Guard as_before(*surroundings_);
      outputs = again_();
    }
    GraphPart part(outputs, inputs_, mark);
    std::vector<Edge> roots;
    std::vector<at::Tensor> root_gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      check_output(outputs, i);
      if (!gradients[i].defined()) continue;
      casting::add_up_in_float_behind(outputs[places_[i]]);
      roots.push_back(torch::autograd::impl::gradient_edge(outputs[places_[i]]));
      root_gradients.push_back(gradients[i]);
    }
    outputs.clear();
    return matched(part.outward(), part.gradients(roots, root_gradients, create_graph));
  }

  void release_variables() override {
    again_ = nullptr;
    inputs_.clear();
    seen_.clear();
    weights_.clear();
  }

 private:
  void check_output(const std::vector<at::Tensor>& outputs, std::size_t i) const {
    const torch::autograd::InputMetadata& first = input_metadata(i);
    const std::size_t place = places_[i];
    const bool same = place < outputs.size() && outputs[place].defined() &&
                      outputs[place].requires_grad() && first.is_same_shape(outputs[place]) &&
                      first.dtype() == outputs[place].dtype();
    if (same) return;
    raise(kRecompute, "output ", place, " of the function was another tensor when it ran again (",
          place < outputs.size() && outputs[place].defined() ? outputs[place].toString() : "none",
          ", was ", first.dtype().name(),
          "); the function must do the same in both runs, whatever has happened in between");
  }

  /// The gradients in the order of this node's edges. A weight's cast may be another node the
  /// second time, if the copy was made anew; the weight is the same.
  torch::autograd::variable_list matched(const std::vector<OutwardEdge>& found,
                                         const std::vector<at::Tensor>& gradients) const {
    torch::autograd::variable_list result(outward_.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t place = place_of(found[i]);
      if (place == outward_.size()) {
        raise(kRecompute, "the function used another weight or tensor (",
              found[i].edge.function->name(),
              ") when it ran again; it must do the same in both runs");
      }
      if (!gradients[i].defined()) continue;
      at::Tensor& sum = result[place];
      sum = sum.defined() ? sum + gradients[i].to(sum.scalar_type()) : gradients[i];
    }
    return result;
  }

  std::size_t place_of(const OutwardEdge& found) const {
    auto place = std::ranges::find_if(outward_, [&](const OutwardEdge& each) {
      return each.edge.function == found.edge.function && each.edge.input_nr == found.edge.input_nr;
    });
    if (place == outward_.end()) {
      const bool is_weight = weight_behind(found.target).defined();
      place = std::ranges::find_if(outward_, [&](const OutwardEdge& each) {
        return is_weight && each.target == found.target;
      });
    }
    return static_cast<std::size_t>(place - outward_.begin());
  }

  const std::vector<OutwardEdge> outward_;
  std::vector<at::Tensor> inputs_;
  std::vector<SeenTensor> seen_;
  std::vector<SeenTensor> weights_;
  std::vector<std::size_t> places_;  // of this node's inputs among the function's outputs
  std::optional<Surroundings> surroundings_;
  Again again_;
};

}  // namespace

struct Recomputation::Begin {
  std::vector<at::Tensor> inputs;
  Surroundings surroundings;
  GraphMark mark;

  explicit Begin(std::vector<at::Tensor> given) : inputs(std::move(given)), surroundings(inputs) {}
};

Recomputation::Recomputation(std::vector<at::Tensor> inputs) {
  if (at::GradMode::is_enabled()) begin_ = std::make_unique<Begin>(std::move(inputs));
}

Recomputation::~Recomputation() = default;

std::vector<at::Tensor> Recomputation::hide(std::vector<at::Tensor> outputs,
                                            std::function<std::vector<at::Tensor>()> again) {
  if (!begin_) return outputs;
  const GraphPart part(outputs, begin_->inputs, begin_->mark);
  if (part.outward().empty()) return outputs;
  const auto node = make_node<RecomputeNode>(part, std::move(begin_->inputs),
                                             std::move(begin_->surroundings), std::move(again));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined() && outputs[i].requires_grad()) outputs[i] = node->take(outputs[i], i);
  }
  return outputs;
}

}  // namespace mezzo::recomputation
