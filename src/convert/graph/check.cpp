#include "convert/graph/check.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "convert/graph/body_ways.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

class Checker {
 public:
  Checker(const Graph& graph, const OldNames& old_names) : graph_(graph), old_names_(old_names) {}

  std::vector<Finding> run() {
    for (const Scope& scope : graph_.scopes) {
      check_inputs(scope);
      check_outputs(scope);
    }
    check_order();
    for (const Node& node : graph_.nodes) {
      if (node.schema != nullptr) check_node(node);
      if (node.instance != kNone) check_call(node);
      if (node.domain.empty() && node.schema == nullptr && node.instance == kNone) {
        report(place_of(node), "unknown", graph_.describe(node), " is unknown in opset ",
               node.opset);
      }
    }
    return std::move(findings_);
  }

 private:
  template <typename... Parts>
  void report(const std::string& place, std::string_view kind, const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    findings_.push_back({text.str(), concat({place, ": ", kind})});
  }

  std::string_view old_name(std::string_view name) const {
    const auto found = old_names_.find(name);
    return found == old_names_.end() ? name : std::string_view(found->second);
  }

  std::string place_of(ScopeId id) const {
    const Scope& scope = graph_.scope(id);
    return scope.owner == kNone
               ? ""
               : concat({place_of(graph_.node(scope.owner)), "/", scope.attribute, "/"});
  }

  std::string place_of(const Value& value) const {
    return concat({place_of(value.scope), "value ", old_name(value.name)});
  }

  // Operators are left out: calls of functions get other ones.
  std::string place_of(const Node& node) const {
    const auto first = std::ranges::find_if(node.outputs, [](ValueId id) { return id != kNone; });
    if (node.name.empty() && first != node.outputs.end())
      return concat({place_of(node.scope), "node of ", old_name(graph_.value(*first).name)});
    return concat({place_of(node.scope), "node ", node.name});
  }

  // A body's inputs come from its owner, whatever it declares.
  void check_inputs(const Scope& scope) {
    if (scope.kind != ScopeKind::kBody) return;
    for (const ValueId id : scope.inputs) {
      const Value& value = graph_.value(id);
      if (value.declared.is_known() && value.type.is_known() && value.declared != value.type) {
        report(place_of(value), "input type", "input ", graph_.describe(value), " is declared ",
               name_of(value.declared), " and is ", name_of(value.type));
      }
    }
  }

  // Every value is made before it is read. One finding per scope: its text is the same after a
  // conversion, which adds nodes.
  void check_order() {
    std::vector<std::size_t> position(graph_.nodes.size());
    for (const Scope& scope : graph_.scopes) {
      for (std::size_t i = 0; i < scope.nodes.size(); ++i)
        position[static_cast<std::size_t>(scope.nodes[i])] = i;
    }
    std::set<ScopeId> unsorted;
    for (const Value& value : graph_.values) {
      if (value.producer == kNone) continue;
      const std::size_t made = position[static_cast<std::size_t>(value.producer)];
      for (const Use& use : value.uses) {
        const NodeId reader = reader_in(value.scope, use);
        if (reader != kNone && position[static_cast<std::size_t>(reader)] < made)
          unsorted.insert(value.scope);
      }
    }
    for (const ScopeId id : unsorted) {
      const std::string path = graph_.path_of(id);
      report(place_of(id), "order", "nodes of ", path.empty() ? "the main graph" : path,
             " read what nodes behind them make");
    }
  }

  // The node of that scope by which a use happens: itself, or the one whose body it stands in.
  NodeId reader_in(ScopeId id, const Use& use) const {
    NodeId node = use.node;
    ScopeId at = node == kNone ? use.scope : graph_.node(node).scope;
    for (; at != id && at != kNone; at = graph_.scope(at).parent) node = graph_.scope(at).owner;
    return at == kNone ? kNone : node;
  }

  void check_call(const Node& node) {
    const Scope& function = graph_.scope(node.instance);
    if (node.inputs.size() > function.inputs.size()) {
      report(place_of(node), "inputs", graph_.describe(node), " has ", node.inputs.size(),
             " inputs; the function takes ", function.inputs.size());
    }
    if (node.outputs.size() > function.outputs.size()) {
      report(place_of(node), "outputs", graph_.describe(node), " has ", node.outputs.size(),
             " outputs; the function gives ", function.outputs.size());
    }
  }

  ScopeId id_of(const Scope& scope) const {
    return static_cast<ScopeId>(&scope - graph_.scopes.data());
  }

  void check_outputs(const Scope& scope) {
    if (scope.kind == ScopeKind::kFunction) return;
    std::size_t index = 0;
    for (Field& field : scope.message->fields()) {
      if (field.number != field::graph::kOutput) continue;
      const Value& value = graph_.value(scope.outputs[index++]);
      if (value.scope != id_of(scope)) {
        report(concat({place_of(id_of(scope)), "output ", std::to_string(index)}), "from outside",
               "output ", graph_.describe(value), " of ", graph_.path_of(id_of(scope)),
               " is a value of a scope around it; a node must hand it on");
      }
      Field* declared = field.open().find(field::value_info::kType);
      if (declared == nullptr) continue;
      const Type type = read_type(declared->open());
      if (type.is_known() && value.type.is_known() && type != value.type) {
        report(place_of(value), "output type", "output ", graph_.describe(value), " is declared ",
               name_of(type), " and is ", name_of(value.type));
      }
    }
  }

  void check_node(const Node& node) {
    const Schema& schema = *node.schema;
    const std::string name = graph_.describe(node);
    const auto inputs = static_cast<int>(node.inputs.size());
    const auto outputs = static_cast<int>(node.outputs.size());
    if (schema.is_deprecated)
      report(place_of(node), "deprecated", name, " is deprecated in opset ", node.opset);
    if (inputs < schema.min_inputs || inputs > schema.max_inputs) {
      report(place_of(node), "inputs", name, " has ", inputs, " inputs; it takes ",
             schema.min_inputs, " to ", schema.max_inputs);
    }
    if (outputs < schema.min_outputs || outputs > schema.max_outputs) {
      report(place_of(node), "outputs", name, " has ", outputs, " outputs; it takes ",
             schema.min_outputs, " to ", schema.max_outputs);
    }
    std::vector<Type> bound(schema.variables.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      check_formal(node, schema.input(i), node.inputs[i], i, "input", bound);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      check_formal(node, schema.output(i), node.outputs[i], i, "output", bound);
    }
    if (!schema.is_custom) check_attributes(node, name);
    check_bodies(node, name);
  }

  void check_formal(const Node& node, const Formal* formal, ValueId id, std::size_t index,
                    std::string_view side, std::vector<Type>& bound) {
    if (formal == nullptr) return;
    if (id == kNone) {
      if (formal->arity == Arity::kOne && side == "input") {
        report(place_of(node), concat({"no input ", std::to_string(index)}), graph_.describe(node),
               " leaves out its input ", formal->name, ", which is needed");
      }
      return;
    }
    const Type& type = graph_.value(id).type;
    const Variable& variable = node.schema->variable_of(*formal);
    if (!type.is_known()) return;
    if (!variable.types().contains(type)) {
      report(place_of(node), concat({"type of ", side, " ", std::to_string(index)}),
             graph_.describe(node), ": ", side, " ", index, " (", formal->name, ") is ",
             name_of(type), ", which opset ", node.opset, " does not allow");
    }
    if (formal->arity == Arity::kVariadicOfAnyTypes || variable.is_fixed) return;
    Type& first = bound[formal->variable];
    if (!first.is_known()) {
      first = type;
    } else if (first != type && !may_differ(node, first, type)) {
      report(place_of(node), concat({"other type of ", side, " ", std::to_string(index)}),
             graph_.describe(node), ": ", side, " ", index, " (", formal->name, ") is ",
             name_of(type), " where ", variable.name, " is ", name_of(first));
    }
  }

  // An optional and what it holds may meet in one variable.
  static bool may_differ(const Node& node, const Type& a, const Type& b) {
    return node.op == "OptionalGetElement" || a.inside() == b || b.inside() == a;
  }

  void check_attributes(const Node& node, const std::string& name) {
    for (const AttributeFact& fact : node.schema->attributes) {
      if (fact.is_required && graph_.attribute(node, fact.name) == nullptr &&
          !has_attribute(node, fact.name)) {
        report(place_of(node), concat({"lacks ", fact.name}), name, " lacks the attribute ",
               fact.name);
      }
    }
    for (Field& field : node.message->fields()) {
      if (field.number != field::node::kAttribute) continue;
      const std::string_view attribute = field.open().text(field::attribute::kName);
      if (node.schema->attribute(attribute) == nullptr) {
        report(place_of(node), concat({"attribute ", attribute}), name, " has the attribute ",
               attribute, ", which opset ", node.opset, " does not know");
      }
    }
  }

  static bool has_attribute(const Node& node, std::string_view name) {
    return std::ranges::any_of(node.message->fields(), [&](Field& field) {
      return field.number == field::node::kAttribute &&
             field.open().text(field::attribute::kName) == name;
    });
  }

  void same(const Node& node, std::string_view what, const Type& a, const Type& b) {
    if (a.is_known() && b.is_known() && a != b && a.inside() != b && b.inside() != a) {
      report(place_of(node), what, graph_.describe(node), ": ", what, " is ", name_of(a),
             " on one side and ", name_of(b), " on the other");
    }
  }

  Type type_of(ValueId id) const { return id == kNone ? Type() : graph_.value(id).type; }

  void check_bodies(const Node& node, const std::string& name) {
    if (node.op == "If") {
      for (const Body& body : node.bodies) {
        const auto& results = graph_.scope(body.scope).outputs;
        if (results.size() != node.outputs.size() && node.outputs.size() > results.size()) {
          report(place_of(node), body.attribute, name, ": ", body.attribute, " gives ",
                 results.size(), " values");
        }
        for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i) {
          same(node, "output " + std::to_string(i), type_of(node.outputs[i]), type_of(results[i]));
        }
      }
    }
    const ScopeId body = node.body("body");
    if (body == kNone || (node.op != "Loop" && node.op != "Scan")) return;
    const Scope& scope = graph_.scope(body);
    check_entries(node);
    const auto after = values_after_results(graph_, body);
    for (std::size_t i = 0; i < after.size(); ++i) {
      for (const ValueId next : after[i]) {
        same(node, concat({"what output ", std::to_string(i), " of the body becomes"}),
             type_of(scope.outputs[i]), type_of(next));
      }
    }
  }

  void check_entries(const Node& node) {
    const auto after = values_after_inputs(graph_, node);
    for (std::size_t i = 0; i < after.size(); ++i) {
      for (const ValueId inside : after[i]) {
        const bool is_entry = inside != kNone && graph_.value(inside).is_scope_input;
        same(node, concat({is_entry ? "input " : "carried value ", std::to_string(i)}),
             type_of(node.inputs[i]), type_of(inside));
      }
    }
  }

  const Graph& graph_;
  const OldNames& old_names_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_graph(const Graph& graph, const OldNames& old_names) {
  return Checker(graph, old_names).run();
}

}  // namespace mezzo::convert
