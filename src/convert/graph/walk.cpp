#include "convert/graph/walk.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "convert/graph/body_ways.h"

namespace mezzo::convert {
namespace {

bool is_standard(const Node& node) {
  return node.domain.empty() && node.schema != nullptr && !is_hollow(node);
}

// Values still to be visited, each once.
class Ahead {
 public:
  explicit Ahead(std::vector<bool>* seen) : seen_(seen) {}

  void add(ValueId id) {
    if (id == kNone) return;
    if (seen_ != nullptr) {
      const auto flag = seen_->begin() + id;
      if (*flag) return;
      *flag = true;
    } else if (!own_.insert(id).second) {
      return;
    }
    values_.push_back(id);
  }
  void add(const std::vector<ValueId>& values) {
    for (const ValueId id : values) add(id);
  }
  std::size_t size() const { return values_.size(); }
  ValueId operator[](std::size_t i) const { return values_[i]; }

 private:
  std::vector<bool>* seen_;
  std::unordered_set<ValueId> own_;
  std::vector<ValueId> values_;
};

void add_some(Ahead& ahead, Onward onward, const std::vector<ValueId>& values) {
  if (onward == Onward::kAll) return ahead.add(values);
  if (onward == Onward::kFirst && !values.empty()) ahead.add(values[0]);
}

}  // namespace

namespace {

// The values that this one is made of, as far as a visit wants to know.
std::vector<ValueId> made_of(const Graph& graph, const Value& value, Onward onward) {
  if (onward == Onward::kStop) return {};
  const auto at = static_cast<std::size_t>(value.output);
  if (value.is_scope_input) return values_before_entry(graph, value.scope, at);
  if (value.producer == kNone) return {};
  const Node& node = graph.node(value.producer);
  if (is_hollow(node)) return values_before_output(graph, node, at);
  if (!is_standard(node) || node.inputs.empty()) return {};
  return onward == Onward::kFirst ? std::vector{node.inputs[0]} : node.inputs;
}

const Node* maker_of(const Graph& graph, const Value& value) {
  const Node* node = value.producer == kNone ? nullptr : &graph.node(value.producer);
  return node != nullptr && is_standard(*node) ? node : nullptr;
}

}  // namespace

void walk_back(const Graph& graph, const std::vector<ValueId>& from, std::size_t farthest,
               const VisitBack& visit, std::vector<bool>* seen) {
  Ahead ahead(seen);
  ahead.add(from);
  for (std::size_t i = 0; i < std::min(ahead.size(), farthest); ++i) {
    const Value& value = graph.value(ahead[i]);
    ahead.add(made_of(graph, value, visit(ahead[i], maker_of(graph, value))));
  }
}

std::vector<ValueId> ways_back_to_goals(const Graph& graph, ValueId from, std::size_t farthest,
                                        const VisitWay& visit) {
  std::vector<ValueId> passed;
  std::unordered_map<ValueId, std::vector<ValueId>> before;
  std::unordered_set<ValueId> leads;
  Ahead ahead(nullptr);
  ahead.add(from);
  for (std::size_t i = 0; i < std::min(ahead.size(), farthest); ++i) {
    const ValueId id = ahead[i];
    const Value& value = graph.value(id);
    const WayStep step = visit(id, maker_of(graph, value));
    passed.push_back(id);
    if (step.is_goal) leads.insert(id);
    before[id] = made_of(graph, value, step.onward);
    ahead.add(before[id]);
  }
  // The farthest come last, so that few rounds are enough.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (std::size_t n = passed.size(); n-- > 0;) {
      const ValueId id = passed[n];
      const bool does =
          std::ranges::any_of(before[id], [&](ValueId in) { return leads.contains(in); });
      is_changed = (does && leads.insert(id).second) || is_changed;
    }
  }
  std::erase_if(passed, [&](ValueId id) { return !leads.contains(id); });
  return passed;
}

void walk_on(const Graph& graph, const std::vector<ValueId>& from, std::size_t farthest,
             const VisitOn& visit) {
  Ahead ahead(nullptr);
  ahead.add(from);
  for (std::size_t i = 0; i < std::min(ahead.size(), farthest); ++i) {
    const ValueId id = ahead[i];
    for (const Use& use : graph.value(id).uses) {
      const auto input = static_cast<std::size_t>(use.input);
      if (use.node == kNone) {
        ahead.add(values_after_result(graph, use.scope, input));
        continue;
      }
      const Node& reader = graph.node(use.node);
      if (is_hollow(reader)) {
        ahead.add(values_after_input(graph, reader, input));
      } else if (is_standard(reader)) {
        add_some(ahead, visit(id, use, reader), reader.outputs);
      }
    }
  }
}

}  // namespace mezzo::convert
