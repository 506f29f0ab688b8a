#include "convert/graph/graph.h"

#include <algorithm>
#include <bit>
#include <sstream>
#include <tuple>
#include <utility>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "core/raise.h"

namespace mezzo::convert {
std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (const std::int64_t dim : dims) {
    text += concat({text.empty() ? "[" : ", ", dim < 0 ? "?" : std::to_string(dim)});
  }
  return text.empty() ? "[]" : concat({text, "]"});
}

ScopeId Node::body(std::string_view attribute) const {
  for (const Body& body : bodies) {
    if (body.attribute == attribute) return body.scope;
  }
  return kNone;
}

std::int64_t Scope::opset(std::string_view domain) const {
  const auto found = opsets.find(domain == "ai.onnx" ? std::string_view() : domain);
  return found == opsets.end() ? 0 : found->second;
}

Graph::Graph(Document& document, const CustomOperators& custom) : document_(document) {
  build_graph(*this, custom);
  infer_types(*this);
}

Message* Graph::attribute(const Node& node, std::string_view name) const {
  namespace f = field::attribute;
  for (Field& field : node.message->fields()) {
    if (field.number != field::node::kAttribute) continue;
    Message& attribute = field.open();
    if (attribute.text(f::kName) != name) continue;
    const std::string_view reference = attribute.text(f::kReference);
    if (reference.empty()) return &attribute;
    ScopeId at = node.scope;
    while (scope(at).kind == ScopeKind::kBody) at = scope(at).parent;
    if (scope(at).kind != ScopeKind::kFunction) return nullptr;
    if (Message* given = this->attribute(this->node(scope(at).owner), reference)) return given;
    for (Field& fallback : scope(at).message->fields()) {
      if (fallback.number == field::function::kAttributeProto &&
          fallback.open().text(f::kName) == reference) {
        return &fallback.open();
      }
    }
    return nullptr;
  }
  return nullptr;
}

bool Graph::is_reference(const Node& node, std::string_view name) {
  return std::ranges::any_of(node.message->fields(), [&](Field& field) {
    return field.number == field::node::kAttribute &&
           field.open().text(field::attribute::kName) == name &&
           !field.open().text(field::attribute::kReference).empty();
  });
}

std::int64_t Graph::integer(const Node& node, std::string_view name, std::int64_t otherwise) const {
  const Message* found = attribute(node, name);
  if (found == nullptr) return otherwise;
  return static_cast<std::int64_t>(found->number(field::attribute::kInt));
}

namespace {

std::string number_text(double value) {
  std::ostringstream text;
  text.precision(9);
  text << value;
  return text.str();
}

std::string value_text(const Message& attribute) {
  namespace f = field::attribute;
  if (const Field* value = attribute.find(f::kString)) return std::string(value->bytes);
  if (const Field* value = attribute.find(f::kInt)) {
    return std::to_string(static_cast<std::int64_t>(value->value));
  }
  if (const Field* value = attribute.find(f::kFloat)) {
    return number_text(std::bit_cast<float>(static_cast<std::uint32_t>(value->value)));
  }
  std::string list;
  const auto append = [&](const std::string& text) {
    if (!list.empty()) list += ", ";
    list += text;
  };
  for (const std::int64_t value : repeated_integers(attribute, f::kInts)) {
    append(std::to_string(value));
  }
  for_each_field(attribute, f::kStrings, [&](const Field& field) {
    append(concat({"'", field.bytes, "'"}));
  });
  return concat({"[", list, "]"});
}

}  // namespace

std::string Graph::attribute_text(const Node& node, std::string_view name) const {
  if (const Message* found = attribute(node, name)) return value_text(*found);
  const AttributeFact* fact = node.schema == nullptr ? nullptr : node.schema->attribute(name);
  if (fact == nullptr || fact->default_text == nullptr) return "";
  return fact->default_text;
}

const Message* Graph::constant(ValueId id) const {
  const Value& value = this->value(id);
  if (value.origin == Origin::kInitializer) return value.initializer;
  // Before IR 4 every initializer had to be listed as an input; from then on that makes a default.
  if (value.origin == Origin::kInput && value.initializer != nullptr && ir_version < 4) {
    return value.initializer;
  }
  if (value.producer == kNone) return nullptr;
  const Node& producer = node(value.producer);
  if (producer.op != "Constant" || !producer.domain.empty() || value.output != 0) return nullptr;
  Message* attribute = this->attribute(producer, "value");
  Field* tensor = attribute == nullptr ? nullptr : attribute->find(field::attribute::kTensor);
  return tensor == nullptr ? nullptr : &tensor->open();
}

std::string Graph::path_of(ScopeId id) const {
  const Scope& scope = this->scope(id);
  if (scope.owner == kNone) return "";
  return concat({describe(node(scope.owner)), "/", scope.attribute});
}

// Names of nodes may be there twice; names of values are not, in one scope.
std::string Graph::key_of(ScopeId id) const {
  const Scope& scope = this->scope(id);
  if (scope.owner == kNone) return "";
  return concat({key_of(node(scope.owner)), "/", scope.attribute, "/"});
}

std::string Graph::key_of(const Node& node) const {
  const auto first = std::ranges::find_if(node.outputs, [](ValueId out) { return out != kNone; });
  if (first != node.outputs.end()) return concat({key_of(node.scope), value(*first).name});
  return concat({key_of(node.scope), "#", std::to_string(node.position)});
}

std::string Graph::describe(const Node& node) const {
  std::string text = "node without outputs";
  if (!node.name.empty()) {
    text = concat({"node '", node.name, "'"});
  } else if (const auto first =
                 std::ranges::find_if(node.outputs, [](ValueId id) { return id != kNone; });
             first != node.outputs.end()) {
    text = concat({"node making '", value(*first).name, "'"});
  }
  const std::string path = path_of(node.scope);
  return concat({path, path.empty() ? "" : "/", text, " (", node.op, ")"});
}

std::string Graph::describe(const Value& value) const {
  const std::string path = path_of(value.scope);
  return concat({"'", value.name, "'", path.empty() ? "" : " in ", path});
}

}  // namespace mezzo::convert
