#include "convert/make/admit_types.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <span>
#include <unordered_set>
#include <utility>

#include "convert/standard/schema.h"

namespace mezzo::convert {
namespace {

/// The types that an element is cast to, the nearest first.
std::span<const Element> wider(Element element) {
  static constexpr Element kOfBits[] = {Element::kInt32, Element::kInt64, Element::kFloat};
  static constexpr Element kOfInt32[] = {Element::kInt64, Element::kDouble, Element::kFloat};
  static constexpr Element kOfInt64[] = {Element::kDouble, Element::kFloat};
  static constexpr Element kFloat[] = {Element::kFloat};
  static constexpr Element kDouble[] = {Element::kDouble};
  switch (element) {
    case Element::kBool:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
      return kOfBits;
    case Element::kInt32:
      return kOfInt32;
    case Element::kInt64:
      return kOfInt64;
    case Element::kFloat:
      return kDouble;
    case Element::kFloat16:
    case Element::kBFloat16:
    case Element::kDouble:
      return kFloat;
    default:
      return {};
  }
}

void names_in(const MadeGraph& graph, std::unordered_set<std::string>* names) {
  for (const MadeTensor& tensor : graph.initializers) names->insert(tensor.name);
  for (const MadeValue& input : graph.inputs) names->insert(input.name);
  for (const MadeNode& node : graph.nodes) {
    names->insert(node.outputs.begin(), node.outputs.end());
    for (const auto& [name, value] : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<MadeGraph>>(&value))
        names_in(**body, names);
    }
  }
}

class Admission {
 public:
  Admission(const MadeModel& model, const TypesOfValues& types)
      : opsets_(model.opsets), types_(types) {
    names_in(model.graph, &taken_);
  }

  std::size_t changed() const { return changed_; }

  void graph(MadeGraph& graph) {
    std::vector<MadeNode> nodes;
    nodes.reserve(graph.nodes.size());
    Casts casts;
    for (MadeNode& node : graph.nodes) {
      for (auto& [name, value] : node.attributes) {
        if (auto* body = std::get_if<std::shared_ptr<MadeGraph>>(&value)) this->graph(**body);
      }
      place(std::move(node), &casts, &nodes);
    }
    graph.nodes = std::move(nodes);
  }

 private:
  using Casts = std::map<std::pair<std::string, Element>, std::string>;

  void place(MadeNode node, Casts* casts, std::vector<MadeNode>* nodes) {
    const auto opset = opsets_.find(node.domain);
    const Schema* schema =
        opset == opsets_.end() ? nullptr : find_schema(node.domain, node.op, opset->second);
    std::vector<MadeNode> behind;
    if (schema != nullptr) {
      for (std::size_t v = 0; v < schema->variables.size(); ++v)
        admit(*schema, v, &node, casts, nodes, &behind);
    }
    nodes->push_back(std::move(node));
    std::move(behind.begin(), behind.end(), std::back_inserter(*nodes));
  }

  /// The operands and results of one type variable of an operator.
  void admit(const Schema& schema, std::size_t variable, MadeNode* node, Casts* casts,
             std::vector<MadeNode>* before, std::vector<MadeNode>* behind) {
    const Variable& fact = schema.variables[variable];
    const auto is_bound = [&](const Formal* formal) {
      return formal != nullptr && formal->variable == variable &&
             formal->arity != Arity::kVariadicOfAnyTypes;
    };
    Element element = Element::kUndefined;
    for (std::size_t i = 0; i < node->inputs.size() && element == Element::kUndefined; ++i) {
      if (!is_bound(schema.input(i))) continue;
      const auto known = types_.find(node->inputs[i]);
      if (known != types_.end()) element = known->second;
    }
    if (element == Element::kUndefined || fact.types().contains(tensor_of(element))) return;
    const auto all = wider(element);
    const auto wanted = std::find_if(
        all.begin(), all.end(), [&](Element one) { return fact.types().contains(tensor_of(one)); });
    if (wanted == all.end()) return;
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      std::string& input = node->inputs[i];
      if (input.empty() || !is_bound(schema.input(i))) continue;
      std::string& cast = (*casts)[{input, *wanted}];
      if (cast.empty()) {
        cast = fresh(input + "_" + name_of(*wanted));
        before->push_back(cast_of(input, cast, *wanted));
      }
      input = cast;
    }
    for (std::size_t i = 0; i < node->outputs.size(); ++i) {
      std::string& output = node->outputs[i];
      if (output.empty() || !is_bound(schema.output(i))) continue;
      std::string made = fresh(output + "_" + name_of(*wanted));
      behind->push_back(cast_of(made, output, element));
      output = std::move(made);
    }
    ++changed_;
  }

  static MadeNode cast_of(const std::string& from, const std::string& to, Element element) {
    MadeNode node;
    node.op = "Cast";
    node.inputs = {from};
    node.outputs = {to};
    node.attributes.emplace("to", static_cast<std::int64_t>(element));
    return node;
  }

  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (std::size_t i = 1; !taken_.insert(name).second; ++i)
      name = wanted + "_" + std::to_string(i);
    return name;
  }

  const std::map<std::string, std::int64_t>& opsets_;
  const TypesOfValues& types_;
  std::unordered_set<std::string> taken_;
  std::size_t changed_ = 0;
};

}  // namespace

std::size_t admit_types(MadeModel& model, const TypesOfValues& types) {
  Admission admission(model, types);
  admission.graph(model.graph);
  return admission.changed();
}

}  // namespace mezzo::convert
