#include "convert/decide/pins/copies.h"

#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/body_ways.h"

namespace mezzo::convert {
namespace {

constexpr std::size_t kFarthestCopy = 64;  // values that one search looks at

bool is_float(const Graph& graph, ValueId id) {
  return id != kNone && is_float_based(graph.value(id).type);
}

bool may_have_same_shape(const Graph& graph, ValueId a, ValueId b) {
  if (a == kNone || b == kNone) return false;
  const Value& left = graph.value(a);
  const Value& right = graph.value(b);
  if (!left.has_dims || !right.has_dims) return true;
  return std::ranges::equal(left.dims, right.dims, [](std::int64_t one, std::int64_t other) {
    return one == other || one < 0 || other < 0;
  });
}

// Is the second operand that number?
bool is_by(const Constants& constants, const Node& node, double number) {
  if (node.inputs.size() != 2 || node.inputs[1] == kNone) return false;
  const ValueId id = node.inputs[1];
  return constants.is_constant(id) && constants.count(id) == 1 &&
         constants.values(id) == std::vector{number};
}

bool is_of_function(const Graph& graph, ScopeId scope) {
  return graph.scope(scope).kind == ScopeKind::kFunction;
}

ValueId at(const std::vector<ValueId>& values, int index) {
  const auto i = static_cast<std::size_t>(index);
  return i < values.size() ? values[i] : kNone;
}

// Where a value comes from unchanged, and in which scope that is read.
struct Step {
  ValueId from = kNone;
  ScopeId reader = kNone;
};

Step step_back(const Graph& graph, const Constants& constants, const Value& value) {
  if (value.is_scope_input) {
    if (!is_of_function(graph, value.scope)) return {};
    const Node& call = graph.node(graph.scope(value.scope).owner);
    return {at(call.inputs, value.output), call.scope};
  }
  if (value.producer == kNone) return {};
  const Node& node = graph.node(value.producer);
  if (node.instance != kNone)
    return {at(graph.scope(node.instance).outputs, value.output), node.instance};
  const bool is_copy = value.output == 0 && may_be_copy(graph, constants, node);
  return is_copy ? Step{node.inputs[0], node.scope} : Step{};
}

// What the reader of a value gives that may be the value as it is; kNone for any other reader.
ValueId step_on(const Graph& graph, const Constants& constants, const Use& use) {
  if (use.node == kNone) {
    if (!is_of_function(graph, use.scope)) return kNone;
    return at(graph.node(graph.scope(use.scope).owner).outputs, use.input);
  }
  const Node& node = graph.node(use.node);
  if (node.instance != kNone) return at(graph.scope(node.instance).inputs, use.input);
  return use.input == 0 && may_be_copy(graph, constants, node) ? node.outputs[0] : kNone;
}

}  // namespace

std::vector<ValueId> values_when_inlined(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (value.is_scope_input && is_of_function(graph, value.scope))
    return {at(graph.node(graph.scope(value.scope).owner).inputs, value.output)};
  if (value.producer == kNone) return {};
  const Node& node = graph.node(value.producer);
  const bool is_if = node.domain.empty() && node.op == "If";
  if (node.instance == kNone && !is_if) return {};
  return values_before_output(graph, node, static_cast<std::size_t>(value.output));
}

bool may_be_copy(const Graph& graph, const Constants& constants, const Node& node) {
  if (!node.domain.empty() || node.schema == nullptr) return false;
  if (node.inputs.empty() || node.outputs.empty() || node.outputs[0] == kNone) return false;
  if (node.op == "Identity" || node.op == "Dropout") return true;
  if (node.op == "Mul" || node.op == "Div") return is_by(constants, node, 1);
  if (node.op == "Add" || node.op == "Sub") return is_by(constants, node, 0);
  if (node.op == "Expand" || node.op == "Reshape" || node.op == "Slice")
    return may_have_same_shape(graph, node.inputs[0], node.outputs[0]);
  return node.op == "Cast" && is_float(graph, node.inputs[0]) && is_float(graph, node.outputs[0]);
}

WayBack way_back(const Graph& graph, const Constants& constants, ValueId id, ScopeId reader) {
  WayBack way;
  for (Step step{id, reader}; step.from != kNone && way.passed.size() < kFarthestCopy;) {
    const Value& value = graph.value(step.from);
    way.origin = step.from;
    way.passed.push_back(step.from);
    way.leaves_body = way.leaves_body || value.scope != step.reader;
    step = step_back(graph, constants, value);
  }
  return way;
}

std::vector<ValueId> copies_of(const Graph& graph, const Constants& constants, ValueId id) {
  std::vector<ValueId> found{id};
  for (std::size_t i = 0; i < std::min(found.size(), kFarthestCopy); ++i) {
    for (const Use& use : graph.value(found[i]).uses) {
      const ValueId copy = step_on(graph, constants, use);
      if (copy != kNone && std::ranges::find(found, copy) == found.end()) found.push_back(copy);
    }
  }
  return found;
}

}  // namespace mezzo::convert
