// Pins from what rounding would do to numbers of the model itself: initializers, Constant nodes,
// and those in attributes.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "convert/decide/decide.h"
#include "convert/decide/pins/objections.h"
#include "convert/decide/pins/roles.h"
#include "convert/graph/walk.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

class ConstantPins {
 public:
  ConstantPins(const Graph& graph, const ConvertPolicy& policy, Constants& constants, SlotMap& map,
               bool planned)
      : graph_(graph),
        policy_(policy),
        constants_(constants),
        map_(map),
        planned_(planned),
        is_kept_(graph.values.size()) {}

  std::vector<std::string> run() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      map_.is_constant[v] ? constant(id) : replaceable_default(id);
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      if (node.op == "ConstantOfShape") repeated_value(node);
      bounds_and_borders(static_cast<NodeId>(n), node);
    }
    return std::move(warnings_);
  }

 private:
  Slot native(ValueId id) const { return map_.native[static_cast<std::size_t>(id)]; }

  bool is_pinned(Slot slot, Label label) const {
    const Pin* pin = map_.slots.pin_of(slot);
    return pin != nullptr && pin->label == label;
  }

  std::string lost(ValueId id, const ConstantFacts& facts) const {
    return range_objection(concat({"constant '", graph_.value(id).name, "'"}), facts,
                           policy_.low());
  }

  // Values are read only where the type is still open.
  void constant(ValueId id) {
    const Value& value = graph_.value(id);
    for (std::size_t u = 0; u < value.uses.size(); ++u) {
      const Use& use = value.uses[u];
      const Slot slot = map_.uses[static_cast<std::size_t>(id)][u];
      const bool is_given = use.node == kNone;  // to the reader of an output, whoever that is
      const bool is_settled = is_pinned(slot, Label::kHigh) && (!is_given || use.scope == 0);
      if (is_settled && !policy_.options().weights_only) continue;
      if (is_given) {
        keep_use(use, slot, lost(id, constants_.facts(id)));
      } else {
        const std::string why = objection_of(id, graph_.node(use.node), use.input);
        keep_use(use, slot, why);
        if (!why.empty() && constants_.facts(id).overflowing != 0) keep_readers_of_copies(id, use);
      }
    }
  }

  std::string objection_of(ValueId id, const Node& reader, int input) {
    return objection(graph_, constants_, id, reader, input, policy_.low(), policy_.allowed());
  }

  // A number beyond the range stays in what moves it, and in sums with it: all of that is float32,
  // up to the first operator that bounds it or makes something else of it.
  void keep_readers_of_copies(ValueId id, const Use& first) {
    const auto hands_on = [](const Node& node) {
      const bool bounds = node.op == "Clip" || node.op == "Min" || node.op == "Max" ||
                          node.op == "Relu" || node.op == "Sign";
      const bool adds = node.op == "Add" || node.op == "Sub" || node.op == "Sum";
      return node.domain.empty() && !bounds && (adds || moves_values(node.op));
    };
    const Node& mover = graph_.node(first.node);
    if (!hands_on(mover)) return;
    walk_on(graph_, mover.outputs, {}, [&](ValueId at, const Use& use, const Node& node) {
      const std::string why = objection_of(id, node, use.input);
      const std::vector<Use>& uses = graph_.value(at).uses;
      const auto u = std::ranges::find_if(uses,
                                          [&](const Use& each) {
                                            return each.node == use.node && each.input == use.input;
                                          }) -
                     uses.begin();
      keep_use(use, map_.uses[static_cast<std::size_t>(at)][static_cast<std::size_t>(u)], why);
      return !why.empty() && hands_on(node) ? Onward::kFirst : Onward::kStop;
    });
  }

  // A value that a caller may replace takes the type asked for, whatever stands there.
  void replaceable_default(ValueId id) {
    const Value& value = graph_.value(id);
    if (!value.is_scope_input || value.initializer == nullptr || native(id) == kNoSlot) return;
    if (!is_float_tensor(*value.initializer)) return;
    if (value.scope == 0 && !is_pinned(native(id), Label::kLow)) return;
    const std::string why = lost(id, constants_.facts_of(*value.initializer));
    if (why.empty()) return;
    if (value.scope == 0) {
      warnings_.push_back(concat({"the default of input '", value.name, "' is rounded to ",
                                  name_of(policy_.low()), ", though ", why}));
    } else {
      keep_value(id, why);
    }
  }

  // ConstantOfShape: one number of the model in every element.
  void repeated_value(const Node& node) {
    const ValueId out = node.outputs.empty() ? kNone : node.outputs[0];
    Message* value = graph_.attribute(node, "value");
    Field* tensor = value == nullptr ? nullptr : value->find(field::attribute::kTensor);
    if (tensor == nullptr || out == kNone || native(out) == kNoSlot) return;
    const std::string why = range_objection(concat({"the value of ", graph_.describe(node)}),
                                            constants_.facts_of(tensor->open()), policy_.low());
    if (!why.empty()) keep_value(out, why);
  }

  // Attributes that later opsets take as inputs. A bound that becomes infinite on its own side
  // bounds nothing before and after.
  void bounds_and_borders(NodeId id, const Node& node) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNumbers{
        {{"Clip", "min"}, {"Clip", "max"}, {"Pad", "value"}, {"Resize", "extrapolation_value"}}};
    for (const auto& [op, attribute] : kNumbers) {
      if (node.op != op) continue;
      const Message* found = graph_.attribute(node, attribute);
      if (found == nullptr) continue;
      const auto bits = static_cast<std::uint32_t>(found->number(field::attribute::kFloat));
      const auto number = std::bit_cast<float>(bits);
      ConstantFacts facts = constants_.facts_of(std::span(&number, 1));
      if (attribute == (number < 0 ? "min" : "max")) facts.overflowing = 0;
      if (attribute == "min" && policy_.allowed().raising &&
          is_tiny_bound(graph_, node, number, policy_.low()))
        continue;
      const std::string why =
          range_objection(concat({attribute, " of ", graph_.describe(node)}), facts, policy_.low());
      const std::size_t primary = primary_variable(graph_, map_, id);
      const auto& variables = map_.variables[static_cast<std::size_t>(id)];
      if (!why.empty() && primary < variables.size())
        keep(variables[primary], graph_.describe(node), why);
    }
  }

  // Keeps the value and all that it becomes where bodies hand it on. Each value is kept once, for
  // the first reason: ways through bodies may be very many and very long.
  void keep_value(ValueId id, const std::string& why) {
    take(id);
    keep_pending(why);
  }

  void keep_use(const Use& use, Slot slot, const std::string& why) {
    if (why.empty()) return;
    keep_reader(use, slot, why);
    keep_pending(why);
  }

  void take(ValueId id) {
    if (is_kept_[static_cast<std::size_t>(id)]) return;
    is_kept_[static_cast<std::size_t>(id)] = true;
    pending_.push_back(id);
  }

  void keep_pending(const std::string& why) {
    while (!pending_.empty()) {
      const ValueId next = pending_.back();
      pending_.pop_back();
      const Value& value = graph_.value(next);
      keep(native(next), graph_.describe(value), why);
      for (std::size_t u = 0; u < value.uses.size(); ++u)
        keep_reader(value.uses[u], map_.uses[static_cast<std::size_t>(next)][u], why);
    }
  }

  // A body's output is read where the node that holds it is read.
  void keep_reader(const Use& use, Slot slot, const std::string& why) {
    if (use.node != kNone) return keep(slot, graph_.describe(graph_.node(use.node)), why);
    const ValueId given = graph_.scope(use.scope).outputs[static_cast<std::size_t>(use.input)];
    if (use.scope == 0) {
      if (is_pinned(slot, Label::kLow)) {
        warnings_.push_back(concat({"the output '", graph_.value(given).name, "' is asked for in ",
                                    name_of(policy_.low()), ", though ", why}));
      }
      return;
    }
    keep(slot, graph_.describe(graph_.value(given)), why);
    if (slot == kNoSlot) return;
    for (const ValueId out : graph_.node(graph_.scope(use.scope).owner).outputs) {
      if (out == kNone || native(out) == kNoSlot) continue;
      if (map_.slots.root(native(out)) == map_.slots.root(slot)) take(out);
    }
  }

  void keep(Slot slot, const std::string& who, const std::string& why) {
    if (slot == kNoSlot) return;
    const Pin* pin = map_.slots.pin_of(slot);
    const bool goes_low = pin != nullptr && pin->label == Label::kLow;
    if (planned_ && goes_low && pin->level == Level::kPlan) {
      raise<ConfigError>("convert", "the plan does not fit this checkpoint: ", why, "; ", who,
                         " would need it in ", name_of(policy_.low()));
    }
    if (goes_low && pin->level == Level::kName)
      warnings_.push_back(concat({who, " is included by name, though ", why}));
    map_.slots.pin(slot, Label::kHigh, Level::kNumeric, why);
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  Constants& constants_;
  SlotMap& map_;
  bool planned_;
  std::vector<bool> is_kept_;     // per value
  std::vector<ValueId> pending_;  // kept, and its readers not yet
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> pin_constants(const Graph& graph, const ConvertPolicy& policy,
                                       Constants& constants, SlotMap& map, bool planned) {
  return ConstantPins(graph, policy, constants, map, planned).run();
}

}  // namespace mezzo::convert
