#include "convert/decide.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "convert/concat.h"
#include "convert/cut.h"
#include "convert/low.h"
#include "convert/rules.h"
#include "convert/sizes.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

// A Cast reads an element in one type and writes it in the other.
constexpr std::int64_t kBytesOfCast = 4 + 2;
constexpr int kLoopFactor = 8;
constexpr int kDeepestLoop = 3;
/// A value measured on samples may be that many times larger on other inputs.
constexpr double kHeadroom = 4.0;

class Decider {
 public:
  Decider(const Graph& graph, const ConvertPolicy& policy, Constants& constants)
      : graph_(graph), policy_(policy), constants_(constants), sizes_(estimated_sizes(graph)) {
    result_.map = map_slots(graph, policy, constants);
  }

  Decisions run(const Evidence& evidence) {
    if (evidence.plan != nullptr) {
      pin_plan(*evidence.plan);
    } else {
      pin_classes();
      pin_names();
      pin_patterns(graph_, map());
      pin_selections(graph_, map());
      pin_ranges(evidence.ranges);
      pin_kept(evidence.kept);
    }
    // Constants are looked at only where the type is still open, so that nothing is read in vain.
    map().slots.settle();
    pin_constants(evidence.plan != nullptr);
    map().slots.settle();
    solve();
    list();
    return std::move(result_);
  }

 private:
  SlotMap& map() { return result_.map; }
  const std::vector<Slot>& variables(NodeId id) {
    return map().variables[static_cast<std::size_t>(id)];
  }

  bool is_decidable(const Node& node) const {
    return node.schema != nullptr && node.domain.empty() && node.op != "Constant";
  }

  void pin_all(NodeId id, Level level, const std::string& why) {
    for (const Slot slot : variables(id)) map().slots.pin(slot, Label::kHigh, level, why);
  }

  void pin_classes() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const auto id = static_cast<NodeId>(n);
      if (!is_decidable(node) || policy_.options().weights_only) continue;
      const ClassOf rule = policy_.class_of(node.op);
      const std::string why = concat({node.op, ": ", rule.why});
      if (rule.cast == CastClass::kFloat) pin_all(id, rule.level, why);
      if (rule.cast == CastClass::kLow) {
        for (const Slot slot : variables(id)) map().slots.pin(slot, Label::kLow, rule.level, why);
      } else {
        pin_secondary(id, node);
      }
      pin_conditions(id, node);
    }
  }

  // Statistics of a batch norm, ratios, coordinates: what has a type of its own keeps it.
  void pin_secondary(NodeId id, const Node& node) {
    if (node.op == "Cast" || node.op == "CastLike") return;
    const std::size_t primary = primary_variable(graph_, map(), id);
    for (std::size_t v = 0; v < variables(id).size(); ++v) {
      if (v == primary || variables(id)[v] == kNoSlot) continue;
      if (primary < variables(id).size() &&
          map().slots.root(variables(id)[v]) == map().slots.root(variables(id)[primary]))
        continue;
      map().slots.pin(variables(id)[v], Label::kHigh, Level::kDefault,
                      concat({node.op, ": statistics and side inputs stay float32"}));
    }
  }

  void pin_conditions(NodeId id, const Node& node) {
    for (const Conditional& condition : policy_.conditions()) {
      if (condition.op != node.op) continue;
      const std::string value = graph_.attribute_text(node, condition.attribute);
      if (std::ranges::find(condition.values, value) == condition.values.end()) continue;
      const bool is_given = policy_.options().conditional_fp32_ops.has_value();
      pin_all(id, is_given ? Level::kList : Level::kPattern,
              concat({node.op, " with ", condition.attribute, "=", value}));
    }
  }

  void pin_names() {
    for (const bool keep : {true, false}) {
      for (const NamePattern& pattern : keep ? policy_.excluded() : policy_.included()) {
        const std::string why =
            concat({keep ? "excluded" : "included", " by name '", pattern.text(), "'"});
        if (pin_name(pattern, keep, why) == 0) {
          result_.warnings.push_back(concat(
              {keep ? "excluded" : "included", " name '", pattern.text(), "' matches no node"}));
        }
      }
    }
  }

  std::size_t pin_name(const NamePattern& pattern, bool keep, const std::string& why) {
    std::size_t matches = 0;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const ValueId first = node.outputs.empty() ? kNone : node.outputs[0];
      const std::string_view name =
          !node.name.empty() || first == kNone ? node.name : graph_.value(first).name;
      if (!pattern.matches(name)) continue;
      ++matches;
      const auto id = static_cast<NodeId>(n);
      if (keep) {
        pin_all(id, Level::kName, why);
        pin_inside(node, why);
      } else if (const std::size_t v = primary_variable(graph_, map(), id);
                 v < variables(id).size()) {
        map().slots.pin(variables(id)[v], Label::kLow, Level::kName, why);
      }
    }
    return matches;
  }

  // Excluding a node excludes what stands in its bodies.
  void pin_inside(const Node& node, const std::string& why) {
    std::vector<ScopeId> scopes;
    for (const Body& body : node.bodies) scopes.push_back(body.scope);
    if (node.instance != kNone) scopes.push_back(node.instance);
    for (const ScopeId scope : scopes) {
      for (const NodeId id : graph_.scope(scope).nodes) {
        pin_all(id, Level::kName, why);
        pin_inside(graph_.node(id), why);
      }
    }
  }

  void pin_ranges(const ValueRanges* ranges) {
    if (ranges == nullptr) return;
    const double limit = largest(policy_.low()) / kHeadroom;
    // Whose largest is normal loses, measured by it, what normal values lose. Where other inputs
    // make it smaller, it fades digit by digit, while what grows overflows at once.
    const double floor = smallest_normal(policy_.low());
    const std::map<ValueId, double> in_order(ranges->begin(), ranges->end());
    for (const auto& [id, magnitude] : in_order) {
      const bool is_large = magnitude > limit;
      if (!is_large && (magnitude >= floor || magnitude == 0)) continue;
      if (map().is_constant[static_cast<std::size_t>(id)]) continue;  // judged by its values
      std::ostringstream text;
      text.precision(4);
      text << '\'' << graph_.value(id).name << (is_large ? "' reaches " : "' reaches only ")
           << magnitude << " on the calibration data, ";
      if (is_large) {
        text << "beyond " << limit << " (a quarter of the range)";
      } else {
        text << "below " << floor << " (the smallest normal value)";
      }
      const std::string why = text.str();
      map().slots.pin(map().native[static_cast<std::size_t>(id)], Label::kHigh, Level::kNumeric,
                      why);
      for (const Slot slot : map().uses[static_cast<std::size_t>(id)]) {
        map().slots.pin(slot, Label::kHigh, Level::kNumeric, why);
      }
    }
  }

  void pin_kept(const std::set<std::string>* kept) {
    if (kept == nullptr || kept->empty()) return;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!kept->contains(plan_key(graph_, graph_.nodes[n]))) continue;
      pin_all(static_cast<NodeId>(n), Level::kNumeric, "found by the search for the tolerance");
    }
  }

  void pin_constants(bool planned) {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!map().is_constant[v]) continue;
      const Value& value = graph_.values[v];
      for (std::size_t u = 0; u < value.uses.size(); ++u) {
        const Slot slot = map().uses[v][u];
        const Pin* pin = map().slots.pin_of(slot);
        if (pin != nullptr && pin->label == Label::kHigh) continue;
        if (value.uses[u].node == kNone) continue;
        const Node& reader = graph_.node(value.uses[u].node);
        const std::string why = objection(graph_, constants_, static_cast<ValueId>(v), reader,
                                          value.uses[u].input, policy_.low());
        if (why.empty()) continue;
        const bool goes_low = pin != nullptr && pin->label == Label::kLow;
        if (planned && goes_low && pin->level == Level::kPlan) {
          raise<ConfigError>("convert", "the plan does not fit this checkpoint: ", why, "; ",
                             graph_.describe(reader), " would need it in ", name_of(policy_.low()));
        }
        if (goes_low && pin->level == Level::kName) {
          result_.warnings.push_back(
              concat({graph_.describe(reader), " is included by name, though ", why}));
        }
        map().slots.pin(slot, Label::kHigh, Level::kNumeric, why);
      }
    }
  }

  void pin_plan(const Plan& plan) {
    std::map<std::pair<std::string_view, std::string_view>, const Decision*> planned;
    for (const Decision& decision : plan.decisions)
      planned[{decision.key, decision.variable}] = &decision;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!is_decidable(node) || !node.bodies.empty()) continue;
      const std::string key = plan_key(graph_, node);
      for (std::size_t v = 0; v < variables(static_cast<NodeId>(n)).size(); ++v) {
        const Slot slot = variables(static_cast<NodeId>(n))[v];
        if (slot == kNoSlot) continue;
        const auto found = planned.find({key, node.schema->variables[v].name});
        if (found == planned.end()) {
          raise<ConfigError>("convert", "the plan says nothing about ", graph_.describe(node));
        }
        map().slots.pin(slot, found->second->low ? Label::kLow : Label::kHigh, Level::kPlan,
                        found->second->why);
      }
    }
  }

  int loop_depth(ScopeId id) const {
    int depth = 0;
    for (; id != kNone;
         id = graph_.scope(id).owner == kNone ? kNone : graph_.node(graph_.scope(id).owner).scope) {
      const NodeId owner = graph_.scope(id).owner;
      if (owner != kNone && graph_.node(owner).op != "If" && graph_.node(owner).instance == kNone)
        ++depth;
    }
    return std::min(depth, kDeepestLoop);
  }

  bool is_pinned(Slot slot, Label label) const {
    const Pin* pin = result_.map.slots.pin_of(slot);
    return pin != nullptr && pin->label == label;
  }

  void solve() {
    Cut cut(map().slots.size());
    for (Slot slot = 0; slot < static_cast<Slot>(map().slots.size()); ++slot) {
      if (map().slots.root(slot) != slot) continue;
      if (is_pinned(slot, Label::kHigh)) cut.pay_if_low(slot, Cut::kInfinite);
      if (is_pinned(slot, Label::kLow)) cut.pay_if_high(slot, Cut::kInfinite);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) add_value(cut, static_cast<ValueId>(v));
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) add_node(cut, static_cast<NodeId>(n));
    const std::vector<bool> answer = cut.solve();
    result_.low.assign(answer.begin(),
                       answer.begin() + static_cast<std::ptrdiff_t>(map().slots.size()));
  }

  // A value is cast once in each direction, however many readers it has.
  void add_value(Cut& cut, ValueId id) {
    const auto v = static_cast<std::size_t>(id);
    if (map().native[v] == kNoSlot) return;
    const Slot made = map().slots.root(map().native[v]);
    std::set<Slot> readers;
    for (const Slot slot : map().uses[v]) {
      if (slot != kNoSlot && map().slots.root(slot) != made) readers.insert(map().slots.root(slot));
    }
    if (readers.empty()) return;
    std::int64_t turns = 1;
    for (int i = loop_depth(graph_.value(id).scope); i > 0; --i) turns *= kLoopFactor;
    const Cost cost{turns, turns * kBytesOfCast * sizes_[v]};
    const bool is_free = low_source(graph_, id, policy_.low()) != kNone;
    if (readers.size() == 1) {
      cut.pay_if_split(made, *readers.begin(), is_free ? Cost{} : cost);
      cut.pay_if_split(*readers.begin(), made, cost);
      return;
    }
    const std::int32_t down = cut.add_variable();
    const std::int32_t up = cut.add_variable();
    cut.pay_if_split(made, down, is_free ? Cost{} : cost);
    cut.pay_if_split(up, made, cost);
    for (const Slot reader : readers) {
      cut.pay_if_split(down, reader, Cut::kInfinite);
      cut.pay_if_split(reader, up, Cut::kInfinite);
    }
  }

  void add_node(Cut& cut, NodeId id) {
    const Node& node = graph_.node(id);
    if (!is_decidable(node) || variables(id).empty()) return;
    const std::size_t primary = primary_variable(graph_, map(), id);
    if (primary >= variables(id).size()) return;
    const Slot slot = map().slots.root(variables(id)[primary]);
    const Rule* rule = find_rule(node.op);
    if (rule != nullptr && rule->moves) {
      cut.pay_if_high(slot, {0, 0, 2});
    } else {
      cut.pay_if_low(slot, {0, 0, 1});
    }
    if (policy_.class_of(node.op).cast != CastClass::kPromote || is_pinned(slot, Label::kLow))
      return;
    for (const ValueId in : node.inputs) {
      const Slot made = in == kNone ? kNoSlot : map().native[static_cast<std::size_t>(in)];
      if (made != kNoSlot) cut.pay_if_split(map().slots.root(made), slot, Cut::kInfinite);
    }
  }

  void list() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!is_decidable(node)) continue;
      for (std::size_t v = 0; v < variables(static_cast<NodeId>(n)).size(); ++v) {
        const Slot slot = variables(static_cast<NodeId>(n))[v];
        if (slot != kNoSlot) result_.list.push_back(describe(node, v, slot));
      }
    }
  }

  Decision describe(const Node& node, std::size_t v, Slot slot) const {
    Decision decision;
    decision.node = graph_.describe(node);
    decision.key = plan_key(graph_, node);
    decision.op = node.op;
    decision.variable = node.schema->variables[v].name;
    decision.low = result_.is_low(slot);
    if (const Pin* pin = result_.map.slots.pin_of(slot)) {
      decision.rule = name_of(pin->level);
      decision.why = pin->why;
    } else {
      decision.rule = "cut";
      decision.why = decision.low ? "its neighbours are low: fewest casts" : "fewest casts";
    }
    if (const Pin* lost = result_.map.slots.overruled(slot))
      decision.otherwise = concat({"low by ", name_of(lost->level), ": ", lost->why});
    return decision;
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  Constants& constants_;
  std::vector<std::int64_t> sizes_;  // per value
  Decisions result_;
};

}  // namespace

std::string plan_key(const Graph& graph, const Node& node) {
  const ValueId first = node.outputs.empty() ? kNone : node.outputs[0];
  const std::string& path = graph.scope(node.scope).path;
  return concat(
      {path, path.empty() ? "" : "/", first == kNone ? node.name : graph.value(first).name});
}

std::size_t primary_variable(const Graph& graph, const SlotMap& map, NodeId id) {
  const Node& node = graph.node(id);
  const auto& variables = map.variables[static_cast<std::size_t>(id)];
  if (node.schema == nullptr) return 0;
  const auto of = [&](const std::vector<ValueId>& values, bool outputs) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Formal* formal = outputs ? node.schema->output(i) : node.schema->input(i);
      if (formal == nullptr || values[i] == kNone || formal->variable >= variables.size()) continue;
      if (variables[formal->variable] != kNoSlot) return std::size_t{formal->variable};
    }
    return variables.size();
  };
  const std::size_t made = of(node.outputs, true);
  return made < variables.size() ? made : of(node.inputs, false);
}

ValueId low_source(const Graph& graph, ValueId id, Element low) {
  const NodeId producer = graph.value(id).producer;
  if (producer == kNone) return kNone;
  const Node& node = graph.node(producer);
  if (node.op != "Cast" || !node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNone)
    return kNone;
  return graph.value(node.inputs[0]).type == tensor_of(low) ? node.inputs[0] : kNone;
}

Decisions decide(const Graph& graph, const ConvertPolicy& policy, Constants& constants,
                 const Evidence& evidence) {
  return Decider(graph, policy, constants).run(evidence);
}

}  // namespace mezzo::convert
