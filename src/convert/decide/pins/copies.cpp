#include "convert/decide/pins/copies.h"

#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/graph/walk.h"

namespace mezzo::convert {
namespace {

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

constexpr WalkBounds kThroughCalls{.through = Through::kCalls};

// The scope in which a value that stands for this one is read, outside a function or inside it.
ScopeId reader_behind(const Graph& graph, const Value& value) {
  if (value.is_scope_input) return graph.node(graph.scope(value.scope).owner).scope;
  return graph.node(value.producer).instance;
}

}  // namespace

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
  walk_back(graph, {id}, kThroughCalls, [&](ValueId at, const Node* node) {
    const Value& value = graph.value(at);
    way.origin = at;
    way.passed.push_back(at);
    way.leaves_body = way.leaves_body || value.scope != reader;
    if (!values_behind(graph, at, Through::kCalls).empty()) {
      reader = reader_behind(graph, value);
      return Onward::kFirst;
    }
    if (node == nullptr || value.output != 0 || !may_be_copy(graph, constants, *node))
      return Onward::kStop;
    reader = node->scope;
    return Onward::kFirst;
  });
  return way;
}

std::vector<ValueId> copies_of(const Graph& graph, const Constants& constants, ValueId id) {
  return walk_on(graph, {id}, kThroughCalls, [&](ValueId, const Use& use, const Node& node) {
    const bool is_copy = use.input == 0 && may_be_copy(graph, constants, node);
    return is_copy ? Onward::kFirst : Onward::kStop;
  });
}

}  // namespace mezzo::convert
