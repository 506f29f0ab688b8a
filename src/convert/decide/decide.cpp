#include "convert/decide/decide.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "convert/decide/pin_context.h"
#include "convert/decide/profile.h"
#include "convert/decide/tables.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"
#include "core/raise.h"
#include "operators/condition.h"

namespace mezzo::convert {
namespace {

class Decider {
 public:
  Decider(const Graph& graph, const ConvertPolicy& policy, Constants& constants)
      : graph_(graph), policy_(policy), constants_(constants) {
    result_.map = map_slots(graph, policy, constants);
    result_.allowed = policy.allowed();
  }

  Decisions run(const Evidence& evidence) {
    if (is_weights_only()) pin_computation();
    if (evidence.plan != nullptr) {
      pin_plan(*evidence.plan);
    } else if (is_weights_only()) {
      warn_of_low_names();
      pin_classes();
      pin_names();
      pin_regions();
      pin_values();
      pin_choices();
      keep_positions();
      pin_kept(evidence.kept);
    } else {
      pin_classes();
      pin_names();
      pin_regions();
      pin_values();
      pin_choices();
      pin_rules_of(false);
      if (evidence.ranges != nullptr) pin_ranges(graph_, policy_, *evidence.ranges, map());
      pin_kept(evidence.kept);
      map().slots.settle();
      pin_rules_of(true);
    }
    // Constants are looked at only where the type is still open, so that nothing is read in vain.
    map().slots.settle();
    for (std::string& warning :
         pin_constants(graph_, policy_, constants_, map(), evidence.plan != nullptr)) {
      result_.warnings.push_back(std::move(warning));
    }
    for (std::string& warning : warnings_of_narrowed_ids(graph_, policy_))
      result_.warnings.push_back(std::move(warning));
    map().slots.settle();
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.schema != nullptr)
        follow_kernels(node, variables(static_cast<NodeId>(n)), map().slots);
    }
    map().slots.settle();
    result_.low = place_casts(graph_, policy_, map());
    if (evidence.plan != nullptr) {
      result_.low_tables = planned_tables(graph_, constants_, map(), *evidence.plan);
    } else {
      store_tables_low();
    }
    result_.list = decisions_of(graph_, policy_, result_);
    std::ranges::sort(result_.float_weights);
    return std::move(result_);
  }

 private:
  SlotMap& map() { return result_.map; }
  const std::vector<Slot>& variables(NodeId id) {
    return map().variables[static_cast<std::size_t>(id)];
  }

  void pin_rules_of(bool settled) {
    const PinContext context{graph_, policy_, constants_, map()};
    for (const PinRule& rule : pin_rules()) {
      if (rule.wants_settled != settled || policy_.is_without(rule.name)) continue;
      map().slots.set_pinning(rule.name);
      rule.pin(context);
    }
    map().slots.set_pinning({});
  }

  bool is_weights_only() const { return policy_.options().weights_only; }

  // Only weights are stored low: all but inputs and outputs of the model stays float32.
  void pin_computation() {
    const std::string why = concat({"only weights are stored in ", name_of(policy_.low())});
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.is_scope_input && value.scope == 0) continue;
      map().slots.pin(map().native[v], Label::kHigh, Level::kDefault, why);
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      pin_all(static_cast<NodeId>(n), Level::kDefault, why);
  }

  // Rounding a weight of a product costs as much as rounding what it is multiplied with; rounding a
  // frequency turns angles.
  void keep_positions() {
    if (policy_.is_without("positions")) return;
    for (const NodeId id : readers_of_positions({graph_, policy_, constants_, map()}))
      result_.float_weights.push_back(graph_.key_of(graph_.node(id)));
  }

  void warn_of_low_names() {
    const Options& options = policy_.options();
    const auto warn = [&](std::string_view option) {
      result_.warnings.push_back(
          concat({option, " changes nothing: only weights are stored low, whoever reads them"}));
    };
    if (options.target_dtype_ops) warn("target_dtype_ops");
    if (options.widest_dtype_ops) warn("widest_dtype_ops");
    if (!options.included_names.empty()) warn("included_names");
    if (options.raise_epsilons) warn("raise_epsilons");
  }

  // The caller's word on a node holds for its weights too.
  void keep_float(NodeId id, Level level, const std::string& why) {
    pin_all(id, level, why);
    if (is_weights_only()) result_.float_weights.push_back(graph_.key_of(graph_.node(id)));
  }

  void pin_all(NodeId id, Level level, const std::string& why) {
    for (const Slot slot : variables(id)) map().slots.pin(slot, Label::kHigh, level, why);
  }

  void pin_classes() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const auto id = static_cast<NodeId>(n);
      if (!is_decidable(node)) continue;
      const ClassOf rule = policy_.class_of(node.qualified_name());
      const std::string why = concat({node.op, ": ", rule.why});
      if (is_weights_only()) {
        if (rule.cast == CastClass::kFloat && rule.level == Level::kList)
          keep_float(id, rule.level, why);
        if (policy_.options().conditional_fp32_ops) pin_conditions(id, node);
        continue;
      }
      if (rule.cast == CastClass::kFloat && !computes_in_float(node, rule))
        pin_all(id, rule.level, why);
      if (rule.cast == CastClass::kLow) {
        for (const Slot slot : variables(id)) map().slots.pin(slot, Label::kLow, rule.level, why);
      } else {
        pin_secondary(id, node);
      }
      pin_conditions(id, node);
    }
  }

  // LayerNormalization and RMSNormalization say themselves in which type they compute, whatever the
  // type of what they read.
  bool computes_in_float(const Node& node, const ClassOf& rule) const {
    constexpr std::string_view kStash = "stash_type";
    const bool has_it = node.domain.empty() && node.schema->attribute(kStash) != nullptr;
    return has_it && rule.level == Level::kDefault &&
           graph_.integer(node, kStash, 1) == static_cast<std::int64_t>(Element::kFloat);
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
      if (condition.op != node.qualified_name()) continue;
      const std::string value = graph_.attribute_text(node, condition.attribute);
      if (!is_condition_value(value, condition.values)) continue;
      const bool is_given = policy_.options().conditional_fp32_ops.has_value();
      keep_float(id, is_given ? Level::kList : Level::kPattern,
                 concat({node.op, " with ", condition.attribute, "=", value}));
    }
  }

  void pin_names() {
    for (const bool keep : {true, false}) {
      if (!keep && is_weights_only()) break;
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
      if (!pattern.matches(name_of_node(graph_, node))) continue;
      ++matches;
      const auto id = static_cast<NodeId>(n);
      pin_named(id, keep, why);
    }
    return matches;
  }

  void pin_named(NodeId id, bool keep, const std::string& why) {
    const std::size_t primary = primary_variable(graph_, map(), id);
    if (keep) {
      keep_float(id, Level::kName, why);
    } else if (primary < variables(id).size()) {
      map().slots.pin(variables(id)[primary], Label::kLow, Level::kName, why);
    }
    pin_inside(graph_.node(id), keep, why);
  }

  // Naming a node names what stands in its bodies.
  void pin_inside(const Node& node, bool keep, const std::string& why) {
    std::vector<ScopeId> scopes;
    for (const Body& body : node.bodies) scopes.push_back(body.scope);
    if (node.instance != kNone) scopes.push_back(node.instance);
    for (const ScopeId scope : scopes) {
      for (const NodeId id : graph_.scope(scope).nodes) pin_named(id, keep, why);
    }
  }

  void pin_regions() {
    for (const RegionPattern& region : policy_.excluded_regions()) {
      const std::string words =
          concat({"region from '", region.from.text(), "' to '", region.to.text(), "'"});
      const std::vector<NodeId> nodes = nodes_between(graph_, region.from, region.to);
      for (const NodeId id : nodes) keep_float(id, Level::kName, concat({"in the ", words}));
      if (nodes.empty())
        result_.warnings.push_back(concat({"excluded ", words, ": no way leads there"}));
    }
  }

  void pin_values() {
    ExcludedValues excluded = pin_excluded_values(graph_, policy_, map());
    for (const NodeId reader : excluded.readers) {
      if (is_weights_only()) result_.float_weights.push_back(graph_.key_of(graph_.node(reader)));
    }
    for (std::string& warning : excluded.warnings) result_.warnings.push_back(std::move(warning));
  }

  void pin_choices() {
    if (!policy_.options().choose) return;
    constexpr std::string_view kWhy = "the caller chooses so";
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const auto id = static_cast<NodeId>(n);
      if (!is_decidable(node)) continue;
      for (std::size_t v = 0; v < variables(id).size(); ++v) {
        if (variables(id)[v] == kNoSlot) continue;
        const std::optional<bool> low = policy_.options().choose(question_about(graph_, node, v));
        if (!low || (*low && is_weights_only())) continue;
        map().slots.pin(variables(id)[v], *low ? Label::kLow : Label::kHigh, Level::kName,
                        std::string(kWhy));
        if (is_weights_only()) result_.float_weights.push_back(graph_.key_of(node));
      }
    }
  }

  void pin_kept(const std::set<std::string>* kept) {
    if (kept == nullptr || kept->empty()) return;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!kept->contains(graph_.key_of(graph_.nodes[n]))) continue;
      keep_float(static_cast<NodeId>(n), Level::kNumeric, "the search found that it must");
    }
  }

  // Weights that stay float32 in the file have no bytes to save.
  void store_tables_low() {
    if (is_weights_only() || !policy_.options().cast_optional_params) return;
    const std::vector<ValueId> tables = tables_of_weights(graph_, policy_, constants_, map());
    if (tables.empty()) return;
    std::vector<bool> low =
        place_casts_for_tables(graph_, policy_, map(), constants_, tables, result_.low);
    result_.for_tables.resize(low.size());
    for (std::size_t slot = 0; slot < low.size(); ++slot)
      result_.for_tables[slot] = low[slot] && !result_.low[slot];
    result_.low = std::move(low);
    result_.low_tables = tables_behind_casts(graph_, result_, tables);
  }

  void pin_plan(const Plan& plan) {
    result_.float_weights = plan.float_weights;
    using Asked = std::pair<std::string_view, std::string_view>;
    std::map<Asked, const Decision*> planned;
    for (const Decision& decision : plan.decisions) {
      if (!planned.emplace(Asked(decision.key, decision.variable), &decision).second) {
        raise<ConfigError>("convert", "the plan decides twice about ", decision.node, " (key '",
                           decision.key, "', type variable ", decision.variable, ")");
      }
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!is_decidable(node) || !node.bodies.empty()) continue;
      const std::string key = graph_.key_of(node);
      for (std::size_t v = 0; v < variables(static_cast<NodeId>(n)).size(); ++v) {
        const Slot slot = variables(static_cast<NodeId>(n))[v];
        if (slot == kNoSlot) continue;
        const auto found = planned.find(Asked(key, node.schema->variables[v].name));
        if (found == planned.end()) {
          raise<ConfigError>("convert", "the plan says nothing about ", graph_.describe(node));
        }
        map().slots.pin(slot, found->second->low ? Label::kLow : Label::kHigh, Level::kPlan,
                        found->second->why);
      }
    }
    // Plans of older versions do not have them.
    for (const auto& [slot, question] : passages_of(graph_, map())) {
      const auto found = planned.find(Asked(question.key, question.variable));
      if (found == planned.end()) continue;
      map().slots.pin(slot, found->second->low ? Label::kLow : Label::kHigh, Level::kPlan,
                      found->second->why);
    }
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  Constants& constants_;
  Decisions result_;
};

}  // namespace

bool is_decidable(const Node& node) {
  return node.is_described() && node.op != "Constant";
}

std::string_view name_of_node(const Graph& graph, const Node& node) {
  const ValueId first = node.outputs.empty() ? kNone : node.outputs[0];
  return !node.name.empty() || first == kNone ? node.name : graph.value(first).name;
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
