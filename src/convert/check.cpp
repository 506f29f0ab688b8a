#include "convert/check.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "convert/fields.h"

namespace mezzo::convert {
namespace {

class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph) {}

  std::vector<Finding> run() {
    for (const Scope& scope : graph_.scopes) check_outputs(scope);
    for (const Node& node : graph_.nodes) {
      if (node.schema != nullptr) check_node(node);
      if (node.domain.empty() && node.schema == nullptr && node.instance == kNone) {
        report(graph_.describe(node), " is unknown in opset ", node.opset);
      }
    }
    return std::move(findings_);
  }

 private:
  template <typename... Parts>
  void report(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    findings_.push_back({text.str()});
  }

  void check_outputs(const Scope& scope) {
    if (scope.kind == ScopeKind::kFunction) return;
    std::size_t index = 0;
    for (Field& field : scope.message->fields()) {
      if (field.number != field::graph::kOutput) continue;
      const Value& value = graph_.value(scope.outputs[index++]);
      Field* declared = field.open().find(field::value_info::kType);
      if (declared == nullptr) continue;
      const Type type = read_type(declared->open());
      if (type.is_known() && value.type.is_known() && type != value.type) {
        report("output ", graph_.describe(value), " is declared ", name_of(type), " and is ",
               name_of(value.type));
      }
    }
  }

  void check_node(const Node& node) {
    const Schema& schema = *node.schema;
    const std::string name = graph_.describe(node);
    const auto inputs = static_cast<int>(node.inputs.size());
    const auto outputs = static_cast<int>(node.outputs.size());
    if (schema.is_deprecated) report(name, " is deprecated in opset ", node.opset);
    if (inputs < schema.min_inputs || inputs > schema.max_inputs) {
      report(name, " has ", inputs, " inputs; it takes ", schema.min_inputs, " to ",
             schema.max_inputs);
    }
    if (outputs < schema.min_outputs || outputs > schema.max_outputs) {
      report(name, " has ", outputs, " outputs; it takes ", schema.min_outputs, " to ",
             schema.max_outputs);
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
        report(graph_.describe(node), " leaves out its input ", formal->name, ", which is needed");
      }
      return;
    }
    const Type& type = graph_.value(id).type;
    const Variable& variable = node.schema->variable_of(*formal);
    if (!type.is_known()) return;
    if (!variable.types().contains(type)) {
      report(graph_.describe(node), ": ", side, " ", index, " (", formal->name, ") is ",
             name_of(type), ", which opset ", node.opset, " does not allow");
    }
    if (formal->arity == Arity::kVariadicOfAnyTypes || variable.is_fixed) return;
    Type& first = bound[formal->variable];
    if (!first.is_known()) {
      first = type;
    } else if (first != type && !may_differ(node, first, type)) {
      report(graph_.describe(node), ": ", side, " ", index, " (", formal->name, ") is ",
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
        report(name, " lacks the attribute ", fact.name);
      }
    }
    for (Field& field : node.message->fields()) {
      if (field.number != field::node::kAttribute) continue;
      const std::string_view attribute = field.open().text(field::attribute::kName);
      if (node.schema->attribute(attribute) == nullptr) {
        report(name, " has the attribute ", attribute, ", which opset ", node.opset,
               " does not know");
      }
    }
  }

  static bool has_attribute(const Node& node, std::string_view name) {
    return std::ranges::any_of(node.message->fields(), [&](Field& field) {
      return field.number == field::node::kAttribute &&
             field.open().text(field::attribute::kName) == name;
    });
  }

  void same(const std::string& name, std::string_view what, const Type& a, const Type& b) {
    if (a.is_known() && b.is_known() && a != b && a.inside() != b && b.inside() != a) {
      report(name, ": ", what, " is ", name_of(a), " on one side and ", name_of(b),
             " on the other");
    }
  }

  Type type_of(ValueId id) const { return id == kNone ? Type() : graph_.value(id).type; }

  void check_bodies(const Node& node, const std::string& name) {
    if (node.op == "If") {
      for (const Body& body : node.bodies) {
        const auto& results = graph_.scope(body.scope).outputs;
        if (results.size() != node.outputs.size() && node.outputs.size() > results.size()) {
          report(name, ": ", body.attribute, " gives ", results.size(), " values");
        }
        for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i) {
          same(name, "output " + std::to_string(i), type_of(node.outputs[i]), type_of(results[i]));
        }
      }
    }
    const ScopeId body = node.body("body");
    if (node.op != "Loop" || body == kNone) return;
    const Scope& scope = graph_.scope(body);
    for (std::size_t i = 2; i < std::min(node.inputs.size(), scope.inputs.size()); ++i) {
      same(name, "carried value " + std::to_string(i - 2), type_of(node.inputs[i]),
           type_of(scope.inputs[i]));
      if (i - 1 < scope.outputs.size()) {
        same(name, "carried value " + std::to_string(i - 2), type_of(scope.inputs[i]),
             type_of(scope.outputs[i - 1]));
      }
    }
  }

  const Graph& graph_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_graph(const Graph& graph) {
  return Checker(graph).run();
}

}  // namespace mezzo::convert
