#include "convert/graph/walk.h"

#include <unordered_map>
#include <unordered_set>

#include "convert/graph/body_ways.h"

namespace mezzo::convert {
namespace {

bool is_standard(const Node& node) {
  return node.domain.empty() && node.schema != nullptr && !is_hollow(node);
}

// Lets each value pass once.
class Once {
 public:
  explicit Once(std::vector<bool>* seen) : seen_(seen) {}

  std::vector<ValueId> operator()(std::vector<ValueId> values) {
    std::erase_if(values, [&](ValueId id) { return id == kNone || !is_new(id); });
    return values;
  }

 private:
  bool is_new(ValueId id) {
    if (seen_ == nullptr) return own_.insert(id).second;
    const auto flag = seen_->begin() + id;
    const bool was_seen = *flag;
    *flag = true;
    return !was_seen;
  }

  std::vector<bool>* seen_;
  std::unordered_set<ValueId> own_;
};

std::vector<ValueId> some_of(const std::vector<ValueId>& values, Onward onward) {
  if (onward == Onward::kAll) return values;
  if (onward == Onward::kFirst && !values.empty()) return {values[0]};
  return {};
}

// May a walk pass the bodies of the node?
bool passes(const Node& owner, Through through) {
  if (through == Through::kBodies) return true;
  if (owner.instance != kNone) return through != Through::kNothing;
  return through == Through::kInlined && owner.domain.empty() && owner.op == "If";
}

// As above, for a scope, which is a function that was called or a body.
bool passes(const Graph& graph, ScopeId scope, Through through) {
  const NodeId owner = graph.scope(scope).owner;
  return owner != kNone && passes(graph.node(owner), through);
}

// The values that this one is made of, as far as a visit wants to know.
std::vector<ValueId> made_of(const Graph& graph, ValueId id, Onward onward,
                             const WalkBounds& bounds) {
  if (onward == Onward::kStop) return {};
  const Value& value = graph.value(id);
  const Node* node = value.producer == kNone ? nullptr : &graph.node(value.producer);
  if (value.is_scope_input || node == nullptr || is_hollow(*node))
    return values_behind(graph, id, bounds.through);
  if (!bounds.any_domain && !is_standard(*node)) return {};
  return some_of(node->inputs, onward);
}

const Node* maker_of(const Graph& graph, const Value& value) {
  const Node* node = value.producer == kNone ? nullptr : &graph.node(value.producer);
  return node != nullptr && is_standard(*node) ? node : nullptr;
}

// The values that readers make of a value there, as far as a visit wants to know.
std::vector<ValueId> made_at(const Graph& graph, ValueId id, const Use& use,
                             const WalkBounds& bounds, const VisitOn& visit) {
  const auto input = static_cast<std::size_t>(use.input);
  if (use.node == kNone) {
    return passes(graph, use.scope, bounds.through) ? values_after_result(graph, use.scope, input)
                                                    : std::vector<ValueId>();
  }
  const Node& reader = graph.node(use.node);
  if (is_hollow(reader)) {
    return passes(reader, bounds.through) ? values_after_input(graph, reader, input)
                                          : std::vector<ValueId>();
  }
  if (!bounds.any_domain && !is_standard(reader)) return {};
  return some_of(reader.outputs, visit(id, use, reader));
}

}  // namespace

std::vector<ValueId> values_behind(const Graph& graph, ValueId id, Through through) {
  const Value& value = graph.value(id);
  const auto at = static_cast<std::size_t>(value.output);
  if (value.is_scope_input) {
    return passes(graph, value.scope, through) ? values_before_entry(graph, value.scope, at)
                                               : std::vector<ValueId>();
  }
  if (value.producer == kNone) return {};
  const Node& node = graph.node(value.producer);
  return is_hollow(node) && passes(node, through) ? values_before_output(graph, node, at)
                                                  : std::vector<ValueId>();
}

std::vector<ValueId> walk_back(const Graph& graph, const std::vector<ValueId>& from,
                               const WalkBounds& bounds, const VisitBack& visit,
                               std::vector<bool>* seen) {
  Once once(seen);
  return walk_places(once(from), bounds.farthest, [&](ValueId id) {
    return once(made_of(graph, id, visit(id, maker_of(graph, graph.value(id))), bounds));
  });
}

std::vector<ValueId> ways_back_to_goals(const Graph& graph, ValueId from, const WalkBounds& bounds,
                                        const VisitWay& visit) {
  std::vector<ValueId> passed;
  std::unordered_map<ValueId, std::vector<ValueId>> before;
  std::unordered_set<ValueId> leads;
  Once once(nullptr);
  walk_places(once({from}), bounds.farthest, [&](ValueId id) {
    const WayStep step = visit(id, maker_of(graph, graph.value(id)));
    passed.push_back(id);
    if (step.is_goal) leads.insert(id);
    before[id] = made_of(graph, id, step.onward, bounds);
    return once(before[id]);
  });
  // From the farthest on, so that few rounds are enough.
  const std::vector<ValueId> farthest_first(passed.rbegin(), passed.rend());
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const ValueId id : farthest_first) {
      const bool does =
          std::ranges::any_of(before[id], [&](ValueId in) { return leads.contains(in); });
      is_changed = (does && leads.insert(id).second) || is_changed;
    }
  }
  std::erase_if(passed, [&](ValueId id) { return !leads.contains(id); });
  return passed;
}

std::vector<ValueId> walk_on(const Graph& graph, const std::vector<ValueId>& from,
                             const WalkBounds& bounds, const VisitOn& visit) {
  Once once(nullptr);
  return walk_places(once(from), bounds.farthest, [&](ValueId id) {
    std::vector<ValueId> next;
    for (const Use& use : graph.value(id).uses) {
      const std::vector<ValueId> made = once(made_at(graph, id, use, bounds, visit));
      next.insert(next.end(), made.begin(), made.end());
    }
    return next;
  });
}

}  // namespace mezzo::convert
