// Slots from schemas: formals of one variable agree, bodies agree with their owners, and where the
// standard or the target allows no low type the slot is pinned.
#include <algorithm>

#include "convert/decide/decide.h"
#include "convert/decide/profile.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/standard/low_forms.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

class Mapper {
 public:
  Mapper(const Graph& graph, const ConvertPolicy& policy, const Constants& constants)
      : graph_(graph), policy_(policy), constants_(constants) {}

  SlotMap run() {
    map_.native.assign(graph_.values.size(), kNoSlot);
    map_.uses.resize(graph_.values.size());
    map_.variables.resize(graph_.nodes.size());
    map_.is_constant.assign(graph_.values.size(), false);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      map_.uses[v].assign(value.uses.size(), kNoSlot);
      if (!is_float_based(value.type)) continue;
      map_.is_constant[v] = constants_.is_constant(static_cast<ValueId>(v));
      if (!map_.is_constant[v]) map_.native[v] = map_.slots.add();
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) node(static_cast<NodeId>(n));
    main_graph();
    forbid_where_no_cast();
    apply_uses();
    return std::move(map_);
  }

 private:
  Slot& native(ValueId id) { return map_.native[static_cast<std::size_t>(id)]; }
  bool is_float(ValueId id) const { return id != kNone && is_float_based(graph_.value(id).type); }

  void forbid(Slot slot, std::string why) {
    map_.slots.pin(slot, Label::kHigh, Level::kValidity, std::move(why));
  }

  // Where a value is read: input `index` of a node or, without a node, output `index` of a scope.
  using Place = std::pair<std::int32_t, int>;
  static Place place(NodeId node, ScopeId scope, std::size_t index) {
    return {node == kNone ? ~scope : node, static_cast<int>(index)};
  }

  void read_as(NodeId node, ScopeId scope, std::size_t index, Slot slot) {
    wanted_[place(node, scope, index)] = slot;
  }

  // The slot as which the value there is read; none if none was given.
  Slot wanted(NodeId node, ScopeId scope, std::size_t index) const {
    const auto found = wanted_.find(place(node, scope, index));
    return found == wanted_.end() ? kNoSlot : found->second;
  }

  void apply_uses() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.type.is_known() && !is_float_based(value.type)) continue;
      for (std::size_t u = 0; u < value.uses.size(); ++u) {
        const Use& use = value.uses[u];
        Slot slot = wanted(use.node, use.scope, static_cast<std::size_t>(use.input));
        if (!value.type.is_known()) {
          map_.uses[v][u] = slot;
          continue;
        }
        if (slot == kNoSlot) {
          slot = map_.slots.add();
          forbid(slot, "its reader's type is not known");
        }
        map_.uses[v][u] = slot;
        // No Cast takes a sequence or an optional.
        if (!value.type.is_plain_tensor()) map_.slots.unite(slot, map_.native[v]);
      }
    }
  }

  void node(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.instance != kNone) return call(id, node);
    const bool is_known = node.is_described() || node.domain == "ai.onnx.ml";
    if (node.schema == nullptr || !is_known) return unknown(id, node);
    if (!node.bodies.empty()) return with_bodies(id, node);
    general(id, node);
  }

  void unknown(NodeId id, const Node& node) {
    const Slot slot = map_.slots.add();
    map_.variables[static_cast<std::size_t>(id)] = {slot};
    const std::string why =
        node.domain.empty()
            ? concat({"opset ", std::to_string(node.opset), " does not know ", node.op})
            : concat({"operators of domain ", node.domain, " are left as they are"});
    forbid(slot, why);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (is_float(node.inputs[i])) read_as(id, kNone, i, slot);
    }
    for (const ValueId out : node.outputs) {
      if (is_float(out)) map_.slots.unite(native(out), slot);
    }
    for (const Body& body : node.bodies) {
      const Scope& scope = graph_.scope(body.scope);
      for (const ValueId in : scope.inputs) {
        if (is_float(in)) map_.slots.unite(native(in), slot);
      }
      for (std::size_t i = 0; i < scope.outputs.size(); ++i) read_as(kNone, body.scope, i, slot);
    }
  }

  // Input i of the node is input i of the body.
  void pass(NodeId id, const Node& node, const Scope& body) {
    for (std::size_t i = 0; i < std::min(node.inputs.size(), body.inputs.size()); ++i) {
      if (is_float(body.inputs[i])) read_as(id, kNone, i, native(body.inputs[i]));
    }
  }

  void call(NodeId id, const Node& node) {
    const Scope& body = graph_.scope(node.instance);
    pass(id, node, body);
    for (std::size_t i = 0; i < std::min(node.outputs.size(), body.outputs.size()); ++i) {
      if (is_float(node.outputs[i])) {
        read_as(kNone, node.instance, i, native(node.outputs[i]));
      }
    }
  }

  // Body outputs become node outputs: `first` counts the body's outputs before them.
  void give(const Node& node, ScopeId body, std::size_t first, std::size_t from = 0) {
    const Scope& scope = graph_.scope(body);
    for (std::size_t i = from; i < node.outputs.size() && i + first < scope.outputs.size(); ++i) {
      if (is_float(node.outputs[i])) {
        read_as(kNone, body, i + first, native(node.outputs[i]));
        // A branch may hand on a container that was made outside.
        const ValueId result = scope.outputs[i + first];
        if (is_float(result) && !graph_.value(result).type.is_plain_tensor()) {
          map_.slots.unite(native(result), native(node.outputs[i]));
        }
      }
    }
    for (std::size_t i = 0; i < scope.outputs.size(); ++i) {
      const bool is_given = i >= first && i - first < node.outputs.size() && i - first >= from &&
                            node.outputs[i - first] != kNone;
      if (is_given || wanted(kNone, body, i) != kNoSlot) continue;
      read_as(kNone, body, i, map_.slots.add());
    }
  }

  void with_bodies(NodeId id, const Node& node) {
    const ScopeId body = node.body("body");
    if (node.op == "If") {
      for (const Body& branch : node.bodies) give(node, branch.scope, 0);
    } else if (node.op == "Loop" && body != kNone) {
      carry(id, node, body, 2, 1, node.inputs.size() < 2 ? 0 : node.inputs.size() - 2);
    } else if (node.op == "Scan" && body != kNone) {
      const std::size_t first = node.opset < 9 ? 1 : 0;
      const auto scanned = static_cast<std::size_t>(graph_.integer(node, "num_scan_inputs", 0));
      const std::size_t all = node.inputs.size() - std::min(first, node.inputs.size());
      scan(id, node, body, first, all - std::min(scanned, all));
    } else if (node.op == "SequenceMap" && body != kNone) {
      pass(id, node, graph_.scope(body));
      give(node, body, 0);
    } else {
      return unknown(id, node);
    }
    check_container(id, node);
  }

  // Loop: input i of the node is input i of the body; carried value j is output j of both.
  void carry(NodeId id, const Node& node, ScopeId body, std::size_t first_input,
             std::size_t first_output, std::size_t count) {
    const Scope& scope = graph_.scope(body);
    for (std::size_t j = 0; j < count && j + first_input < scope.inputs.size(); ++j) {
      state(id, node, body, j + first_input, scope.inputs[j + first_input], j + first_output, j);
    }
    give(node, body, first_output, count);
  }

  void state(NodeId id, const Node& node, ScopeId body, std::size_t input, ValueId inner,
             std::size_t body_output, std::size_t output) {
    if (!is_float(inner)) return;
    const Slot slot = native(inner);
    read_as(id, kNone, input, slot);
    read_as(kNone, body, body_output, slot);
    if (output < node.outputs.size() && is_float(node.outputs[output])) {
      map_.slots.unite(native(node.outputs[output]), slot);
    }
  }

  void scan(NodeId id, const Node& node, ScopeId body, std::size_t first, std::size_t states) {
    const Scope& scope = graph_.scope(body);
    for (std::size_t j = 0; j < states && j < scope.inputs.size(); ++j) {
      state(id, node, body, j + first, scope.inputs[j], j, j);
    }
    for (std::size_t j = states; j < scope.inputs.size(); ++j) {
      if (is_float(scope.inputs[j])) {
        read_as(id, kNone, j + first, native(scope.inputs[j]));
      }
    }
    give(node, body, 0, states);
  }

  // Containers that take no low type: what they read is forbidden, not what made it.
  void check_container(NodeId id, const Node& node) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      check_formal(node, node.schema->input(i), node.inputs[i], wanted(id, kNone, i));
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (!is_float(node.outputs[i])) continue;
      check_formal(node, node.schema->output(i), node.outputs[i], native(node.outputs[i]));
    }
  }

  void check_formal(const Node& node, const Formal* formal, ValueId id, Slot slot) {
    if (formal == nullptr || !is_float(id) || slot == kNoSlot) return;
    const Type low = graph_.value(id).type.with(policy_.low());
    if (!node.schema->variable_of(*formal).types().contains(low))
      forbid(slot, without_low_form(node.domain, node.op, node.opset, policy_.low()));
  }

  void general(NodeId id, const Node& node) {
    auto& variables = map_.variables[static_cast<std::size_t>(id)];
    variables.assign(node.schema->variables.size(), kNoSlot);
    // Which gives a tensor as it is.
    bool has_container = !node.schema->is_custom && node.op == "OptionalGetElement";
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Formal* formal = node.schema->input(i);
      if (formal == nullptr || !is_float(node.inputs[i])) continue;
      const Slot slot = formal_slot(node, *formal, node.inputs[i], variables);
      read_as(id, kNone, i, slot);
      has_container = has_container || !graph_.value(node.inputs[i]).type.is_plain_tensor();
    }
    std::vector<bool> has_input(variables.size());
    for (std::size_t i = 0; i < variables.size(); ++i) has_input[i] = variables[i] != kNoSlot;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Formal* formal = node.schema->output(i);
      if (!is_float(node.outputs[i])) continue;
      if (formal == nullptr) {
        forbid(native(node.outputs[i]), "an output beyond the schema");
        continue;
      }
      const Slot slot = formal_slot(node, *formal, node.outputs[i], variables);
      if (native(node.outputs[i]) != kNoSlot) map_.slots.unite(native(node.outputs[i]), slot);
      if (!has_input[formal->variable]) attribute_output(node, slot, variables);
      has_container = has_container || !graph_.value(node.outputs[i]).type.is_plain_tensor();
    }
    std::string why = "BitCast reads the bits of float32";
    const bool allowed = node.op != "BitCast" &&
                         profile_allows(policy_.profile(), graph_, node, policy_.low(), &why);
    keep_to_kernels(policy_.profile(), graph_, node, variables, map_.slots);
    Slot first = kNoSlot;
    for (const Slot slot : variables) {
      if (slot == kNoSlot) continue;
      if (!allowed) forbid(slot, why);
      if (has_container && first != kNoSlot) map_.slots.unite(first, slot);
      first = slot;
    }
  }

  Slot formal_slot(const Node& node, const Formal& formal, ValueId id,
                   std::vector<Slot>& variables) {
    const Variable& variable = node.schema->variable_of(formal);
    Slot slot = variable.is_fixed ? kNoSlot : variables[formal.variable];
    if (slot == kNoSlot) {
      slot = map_.slots.add();
      if (!variable.is_fixed) variables[formal.variable] = slot;
    }
    if (variable.is_fixed) {
      forbid(slot, concat({node.op, ": ", formal.name, " is always float32"}));
    } else if (!variable.types().contains(graph_.value(id).type.with(policy_.low()))) {
      forbid(slot, without_low_form(node.domain, node.op, node.opset, policy_.low()));
    }
    return slot;
  }

  // The output's type stands in an attribute, or follows from nothing that can be changed.
  void attribute_output(const Node& node, Slot slot, const std::vector<Slot>& variables) {
    const std::string_view op = node.schema->is_custom ? std::string_view() : node.op;
    if (op == "Cast" || op == "SequenceEmpty") {
      if (op == "Cast") cast_output(node, slot);
      return;
    }
    if (op == "ConstantOfShape" && !Graph::is_reference(node, "value")) return;
    if (op == "EyeLike") {
      if (graph_.attribute(node, "dtype") != nullptr) return;
      for (const Slot other : variables) map_.slots.unite(other, slot);
      return;
    }
    // From opset 23 on the type of the result is that of the scale, if none is given.
    if (op == "DequantizeLinear" && graph_.attribute(node, "output_dtype") == nullptr) {
      const Formal* scale = node.schema->input(1);
      if (scale != nullptr) return map_.slots.unite(variables[scale->variable], slot);
    }
    if (op == "SplitToSequence" || op == "SequenceConstruct" || op == "SequenceAt" ||
        op == "ConcatFromSequence" || op == "OptionalGetElement" ||
        (op == "Optional" && !node.inputs.empty())) {
      return;  // united with its inputs, since containers are involved
    }
    forbid(slot, concat({node.op, " sets the type of its output itself"}));
  }

  void cast_output(const Node& node, Slot slot) {
    const ValueId in = node.inputs.empty() ? kNone : node.inputs[0];
    const Element from = in == kNone ? Element::kUndefined : graph_.value(in).type.element;
    if (Graph::is_reference(node, "to"))
      return forbid(slot, "its type is an attribute of the function");
    switch (from) {
      case Element::kBool:
      case Element::kUint8:
      case Element::kInt8:
      case Element::kFloat:
        return;  // exact in the low type too, or our own business
      default:
        break;
    }
    map_.slots.pin(slot, Label::kHigh, Level::kNumeric,
                   concat({"a Cast of the model from ", name_of(from)}));
  }

  void main_graph() {
    const Scope& main = graph_.scope(0);
    const bool has_cast = can_cast(main);
    for (const ValueId in : main.inputs) {
      if (!is_float(in) || native(in) == kNoSlot) continue;
      map_.slots.pin(native(in), io_label(in, has_cast), Level::kValidity, "an input of the model");
    }
    for (std::size_t i = 0; i < main.outputs.size(); ++i) {
      const Slot slot = map_.slots.add();
      if (is_float(main.outputs[i])) {
        map_.slots.pin(slot, io_label(main.outputs[i], has_cast), Level::kValidity,
                       "an output of the model");
      }
      read_as(kNone, 0, i, slot);
    }
  }

  // Can a Cast to and from the low type stand in this scope?
  bool can_cast(const Scope& scope) const { return has_cast_to(policy_.low(), scope.opset("")); }

  Label io_label(ValueId id, bool has_cast) const {
    const Value& value = graph_.value(id);
    if (!value.type.is_plain_tensor()) return Label::kHigh;
    const Label label = policy_.io_label(std::string(value.name));
    if (label == Label::kLow && !has_cast) {
      raise<UnsupportedError>("convert", "'", value.name, "' is asked for in ",
                              name_of(policy_.low()), ", but ",
                              without_cast_to(policy_.low(), graph_.scope(0).opset(""),
                                              "leave its inputs and outputs float32 (io 'keep')"));
    }
    return label;
  }

  // Scopes without a Cast to the low type, and sparse initializers, stay as they are.
  void forbid_where_no_cast() {
    for (std::size_t s = 0; s < graph_.scopes.size(); ++s) {
      const Scope& scope = graph_.scopes[s];
      const bool possible = can_cast(scope);
      for (const auto& [name, id] : scope.names) {
        const Value& value = graph_.value(id);
        if (possible && value.origin != Origin::kSparseInitializer) continue;
        if (native(id) == kNoSlot || (s == 0 && value.is_scope_input)) continue;
        forbid(native(id),
               possible ? "a sparse initializer" : "its opset has no Cast to the low type");
      }
      if (possible || s == 0) continue;
      for (std::size_t i = 0; i < scope.outputs.size(); ++i) {
        forbid(wanted(kNone, static_cast<ScopeId>(s), i), "its opset has no Cast to the low type");
      }
    }
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  const Constants& constants_;
  SlotMap map_;
  std::map<Place, Slot> wanted_;
};

}  // namespace

SlotMap map_slots(const Graph& graph, const ConvertPolicy& policy, const Constants& constants) {
  SlotMap map = Mapper(graph, policy, constants).run();
  pin_unknown_types(graph, map);
  return map;
}

}  // namespace mezzo::convert
