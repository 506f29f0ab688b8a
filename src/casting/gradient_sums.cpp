#include "casting/gradient_sums.h"

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "casting/inner_float.h"
#include "core/autograd_node.h"
#include "core/scalar_type.h"

namespace mezzo::casting {
namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::Node;
using torch::autograd::variable_list;

at::Tensor rounded_sum(const at::Tensor& sum, at::ScalarType type) {
  // The values of one place are added up when they are put together.
  return (sum.is_sparse() ? sum.coalesce() : sum).to(type);
}

/// Stands between a derivative whose gradient is sparse and what that is the gradient of.
class SparseSumNode final : public Node {
 public:
  SparseSumNode(torch::autograd::Edge to, at::ScalarType type) : type_(type) {
    add_next_edge(std::move(to));
  }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {rounded_sum(gradients[0], type_)};
  }
  std::string name() const override { return "MezzoSparseSum"; }

 private:
  at::ScalarType type_;
};

/// Rounds the float sum that one input of a node got.
class RoundSum final : public FunctionPreHook {
 public:
  RoundSum(std::size_t input, at::ScalarType type) : input_(input), type_(type) {}
  variable_list operator()(const variable_list& gradients) override {
    variable_list rounded = gradients;
    at::Tensor& sum = rounded[input_];
    if (sum.defined() && sum.scalar_type() == at::kFloat) sum = rounded_sum(sum, type_);
    return rounded;
  }

 private:
  std::size_t input_;
  at::ScalarType type_;
};

/// Hands a derivative its gradients in float. The program, which may ask for the gradient of the
/// result, sees it in the result's type.
class WidenGradients final : public FunctionPreHook {
 public:
  variable_list operator()(const variable_list& gradients) override {
    variable_list wide = gradients;
    for (at::Tensor& gradient : wide) {
      if (gradient.defined() && is_low(gradient.scalar_type())) gradient = gradient.to(at::kFloat);
    }
    return wide;
  }
};

bool is_low_input(const Node& node, std::uint32_t input) {
  const auto& metadata = node.input_metadata(input);
  if (metadata.was_default_constructed()) return false;
  const auto type = metadata.grad_dtype();
  return type && is_low(*type);
}

/// Accumulators of leaves outlive a graph, and so do the hooks of their leaves.
void sum_in_float(Node& node, std::uint32_t input) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!is_low_input(node, input)) return;
  auto& metadata = node.mutable_input_metadata(input);
  auto& hooks = node.tensor_pre_hooks();
  const bool is_there = !hooks.empty() && dynamic_cast<RoundSum*>(hooks.front().get()) != nullptr &&
                        node.num_inputs() == 1;
  // Hooks of the program come after it, and see the type that they always saw.
  if (!is_there)
    hooks.insert(hooks.begin(), std::make_unique<RoundSum>(input, *metadata.grad_dtype()));
  metadata.set_grad_dtype(at::kFloat);
}

struct Input {
  const Node* node;
  std::uint32_t number;
  bool operator==(const Input&) const = default;
};

struct InputHash {
  std::size_t operator()(const Input& input) const {
    return std::hash<const Node*>()(input.node) + std::size_t{0x9E3779B9U} * input.number;
  }
};

/// The graph as far as this thread's backward pass has looked at it.
class Uses {
 public:
  void look_behind(Node& node) {
    const int pass = torch::autograd::get_current_graph_task_id();
    if (pass_ != pass) {
      of_nodes_.clear();
      of_inputs_.clear();
      pass_ = pass;
    }
    if (!of_nodes_.emplace(&node, 0).second) return;
    open_.push_back(&node);
    while (!open_.empty()) {
      const Node* const next = open_.back();
      open_.pop_back();
      for (const torch::autograd::Edge& edge : next->next_edges()) {
        if (edge.is_valid()) count(*edge.function, edge.input_nr);
      }
    }
  }

 private:
  void count(Node& node, std::uint32_t input) {
    const auto [found, is_new] = of_nodes_.emplace(&node, 0);
    if (is_new) open_.push_back(&node);
    if (!is_low_input(node, input)) return;
    const std::int64_t uses =
        node.num_inputs() == 1 ? ++found->second : ++of_inputs_[{&node, input}];
    if (uses > kFewTerms) sum_in_float(node, input);
  }

  int pass_ = -1;
  ska::flat_hash_map<const Node*, std::int64_t> of_nodes_;
  ska::flat_hash_map<Input, std::int64_t, InputHash> of_inputs_;
  std::vector<Node*> open_;
};

/// The node owns its hooks.
class LookBehind final : public FunctionPreHook {
 public:
  explicit LookBehind(Node* node) : node_(node) {}
  variable_list operator()(const variable_list& gradients) override {
    thread_local Uses uses;
    uses.look_behind(*node_);
    return gradients;
  }

 private:
  Node* node_;
};

}  // namespace

void take_gradient_in_float(const at::Tensor& result) {
  if (!result.defined() || !result.requires_grad() || !is_low(result.scalar_type())) return;
  const auto& node = result.grad_fn();
  if (node != nullptr) node->add_pre_hook(std::make_unique<WidenGradients>());
}

void add_up_sparse_gradient(const at::Tensor& result, const at::Tensor& of) {
  if (!result.defined() || !result.requires_grad() || !is_low(result.scalar_type())) return;
  const auto& node = result.grad_fn();
  if (node == nullptr || node->num_outputs() == 0 || !node->next_edge(0).is_valid()) return;
  const auto sum = make_node<SparseSumNode>(node->next_edge(0), of.scalar_type());
  const std::uint32_t input = sum->add_input_metadata(of);
  sum->mutable_input_metadata(input).set_grad_dtype(at::kFloat);
  node->set_next_edge(0, {sum, input});
}

void add_up_in_float_behind(const at::Tensor& result) {
  if (!result.defined() || !result.requires_grad()) return;
  const auto& node = result.grad_fn();
  if (node != nullptr) node->add_tensor_pre_hook(std::make_unique<LookBehind>(node.get()));
}

}  // namespace mezzo::casting
