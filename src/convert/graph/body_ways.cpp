#include "convert/graph/body_ways.h"

namespace mezzo::convert {
namespace {

// Which input and output of a node stands for which of its body.
class Ways {
 public:
  Ways(const Graph& graph, const Node& node) : graph_(graph), node_(node) {
    const bool is_standard = node.domain.empty() && node.instance == kNone;
    is_known_ =
        node.instance != kNone || (is_standard && (node.op == "If" || node.op == "Loop" ||
                                                   node.op == "Scan" || node.op == "SequenceMap"));
    if (is_standard && node.op == "Loop") {  // reads (turns, condition, states...)
      output_of_body_ = 1;
      first_state_ = 2;
      states_ = node.inputs.size() < 2 ? 0 : node.inputs.size() - 2;
    } else if (is_standard && node.op == "Scan") {
      input_of_node_ = node.opset < 9 ? 1 : 0;
      const auto scanned = static_cast<std::size_t>(graph.integer(node, "num_scan_inputs", 0));
      const std::size_t read = input_of_node_ + scanned;
      states_ = node.inputs.size() < read ? 0 : node.inputs.size() - read;
    }
  }

  std::vector<ValueId> after_input(std::size_t index) const {
    std::vector<ValueId> found;
    for (const Scope* body : bodies()) {
      if (!is_known_) append(found, body->inputs);
      if (is_known_ && index >= input_of_node_) add(found, body->inputs, index - input_of_node_);
    }
    if (may_make_no_turn() && index >= first_state_)
      add(found, node_.outputs, index - first_state_);
    return found;
  }

  std::vector<ValueId> before_output(std::size_t index) const {
    std::vector<ValueId> found;
    for (const Scope* body : bodies()) {
      is_known_ ? add(found, body->outputs, index + output_of_body_) : append(found, body->outputs);
    }
    if (may_make_no_turn() && index < states_) add(found, node_.inputs, index + first_state_);
    return found;
  }

  std::vector<ValueId> after_result(const Scope& body, std::size_t index) const {
    if (!is_known_) return node_.outputs;
    std::vector<ValueId> found;
    if (index < output_of_body_) return found;  // the condition
    const std::size_t state = index - output_of_body_;
    add(found, node_.outputs, state);
    if (state < states_) add(found, body.inputs, state + first_state_);
    return found;
  }

  std::vector<ValueId> before_entry(const Scope& body, std::size_t index) const {
    if (!is_known_) return node_.inputs;
    std::vector<ValueId> found;
    add(found, node_.inputs, index + input_of_node_);
    if (index >= first_state_ && index - first_state_ < states_)
      add(found, body.outputs, index - first_state_ + output_of_body_);
    return found;
  }

 private:
  static void add(std::vector<ValueId>& found, const std::vector<ValueId>& from, std::size_t i) {
    if (i < from.size() && from[i] != kNone) found.push_back(from[i]);
  }

  static void append(std::vector<ValueId>& found, const std::vector<ValueId>& all) {
    found.insert(found.end(), all.begin(), all.end());
  }

  bool may_make_no_turn() const { return first_state_ != 0; }

  std::vector<const Scope*> bodies() const {
    std::vector<const Scope*> found;
    for (const Body& body : node_.bodies) found.push_back(&graph_.scope(body.scope));
    if (node_.instance != kNone) found.push_back(&graph_.scope(node_.instance));
    return found;
  }

  const Graph& graph_;
  const Node& node_;
  bool is_known_ = false;           // otherwise anything may become anything
  std::size_t input_of_node_ = 0;   // the one that is the body's first
  std::size_t output_of_body_ = 0;  // the one that is the node's first
  std::size_t first_state_ = 0;     // among the body's inputs
  std::size_t states_ = 0;          // what one turn gives the next
};

}  // namespace

bool is_hollow(const Node& node) {
  return !node.bodies.empty() || node.instance != kNone;
}

std::vector<ValueId> values_after_input(const Graph& graph, const Node& node, std::size_t index) {
  return Ways(graph, node).after_input(index);
}

std::vector<std::vector<ValueId>> values_after_inputs(const Graph& graph, const Node& node) {
  const Ways ways(graph, node);
  std::vector<std::vector<ValueId>> found;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) found.push_back(ways.after_input(i));
  return found;
}

std::vector<ValueId> values_before_output(const Graph& graph, const Node& node, std::size_t index) {
  return Ways(graph, node).before_output(index);
}

std::vector<ValueId> values_after_result(const Graph& graph, ScopeId body, std::size_t index) {
  const Scope& scope = graph.scope(body);
  if (scope.owner == kNone) return {};
  return Ways(graph, graph.node(scope.owner)).after_result(scope, index);
}

std::vector<std::vector<ValueId>> values_after_results(const Graph& graph, ScopeId body) {
  const Scope& scope = graph.scope(body);
  std::vector<std::vector<ValueId>> found(scope.outputs.size());
  if (scope.owner == kNone) return found;
  const Ways ways(graph, graph.node(scope.owner));
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = ways.after_result(scope, i);
  return found;
}

std::vector<ValueId> values_before_entry(const Graph& graph, ScopeId body, std::size_t index) {
  const Scope& scope = graph.scope(body);
  if (scope.owner == kNone) return {};
  return Ways(graph, graph.node(scope.owner)).before_entry(scope, index);
}

}  // namespace mezzo::convert
