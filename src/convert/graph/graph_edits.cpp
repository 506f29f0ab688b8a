#include "convert/graph/graph_edits.h"

#include <utility>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

Field wrapped(std::uint32_t number, Message message) {
  Field field;
  field.number = number;
  field.wire = Wire::kBytes;
  field.message = std::make_unique<Message>(std::move(message));
  return field;
}

}  // namespace

Message constant_node(std::string_view output, std::string_view name, Message tensor) {
  Message attribute;
  attribute.add(field::attribute::kName, std::string_view("value"));
  attribute.add(field::attribute::kTensor, std::make_unique<Message>(std::move(tensor)));
  attribute.add(field::attribute::kType, field::attribute_type::kTensor);
  Message node;
  node.add(field::node::kOutput, output);
  node.add(field::node::kName, name);
  node.add(field::node::kOpType, std::string_view("Constant"));
  node.add(field::node::kAttribute, std::make_unique<Message>(std::move(attribute)));
  return node;
}

GraphEdits::Edit& GraphEdits::edit(ScopeId id) {
  const Scope& scope = graph_.scope(id);
  Edit& edit = edits_[scope.message];
  edit.is_function = scope.kind == ScopeKind::kFunction;
  return edit;
}

Names& GraphEdits::names(ScopeId id) {
  while (graph_.scope(id).kind == ScopeKind::kBody) id = graph_.scope(id).parent;
  auto& names = names_[id];
  if (!names) {
    const Scope& root = graph_.scope(id);
    names = root.kind == ScopeKind::kFunction ? std::make_unique<Names>(*root.message)
                                              : std::make_unique<Names>(graph_, id);
  }
  return *names;
}

Message GraphEdits::tensor(const std::vector<std::int64_t>& dims) {
  Message tensor;
  for (const std::int64_t dim : dims)
    tensor.add(field::tensor::kDims, static_cast<std::uint64_t>(dim));
  tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
  return tensor;
}

void GraphEdits::fill(Message& tensor, const std::vector<float>& values) const {
  tensor.add(field::tensor::kRawData,
             graph_.document().keep(std::string(reinterpret_cast<const char*>(values.data()),
                                                values.size() * sizeof(float))));
}

void GraphEdits::remove_node(const Node& node) {
  edit(node.scope).dead_nodes.insert(node.message);
}

void GraphEdits::forget(const Value& value) {
  edit(value.scope).forgotten.insert(value.name);
}

void GraphEdits::release(ValueId id) {
  const Value& value = graph_.value(id);
  if (++released_[id] != value.uses.size()) return;
  if (value.producer != kNone) {
    const Node& node = graph_.node(value.producer);
    if (node.op != "Constant") return;
    remove_node(node);
  } else if (value.origin == Origin::kInitializer) {
    edit(value.scope).dead_constants.insert(value.name);
  } else {
    return;  // an input too: those stay
  }
  forget(value);
}

void GraphEdits::replace_values(ValueId id, const std::vector<float>& values) {
  const Value& value = graph_.value(id);
  const Message* old = graph_.constant(id);
  Message made =
      old == nullptr ? tensor({static_cast<std::int64_t>(values.size())}) : without_values(*old);
  fill(made, values);
  if (value.producer == kNone) {
    edit(value.scope).replaced.emplace(old, std::move(made));
    return;
  }
  const Node& node = graph_.node(value.producer);
  edit(value.scope)
      .replaced.emplace(node.message, constant_node(value.name, node.name, std::move(made)));
}

std::string_view GraphEdits::add_constant(ScopeId id, const std::string& wanted,
                                          const std::vector<std::int64_t>& dims,
                                          const std::vector<float>& values) {
  Document& document = graph_.document();
  const std::string_view name = document.keep(names(id).take(wanted));
  Message made = tensor(dims);
  fill(made, values);
  // Up to IR 3 initializers had to be inputs.
  if (graph_.scope(id).kind != ScopeKind::kFunction && graph_.ir_version >= 4) {
    made.add(field::tensor::kName, name);
    edit(id).initializers.push_back(std::move(made));
  } else {
    const std::string_view node = document.keep(names(id).take(concat({"Constant_", name})));
    edit(id).constants.push_back(constant_node(name, node, std::move(made)));
  }
  return name;
}

void GraphEdits::make() {
  for (auto& [message, edit] : edits_) make(*message, edit);
  edits_.clear();
}

void GraphEdits::make(Message& scope, Edit& edit) {
  namespace g = field::graph;
  const std::uint32_t node_number = edit.is_function ? field::function::kNode : g::kNode;
  const std::uint32_t info_number = edit.is_function ? field::function::kValueInfo : g::kValueInfo;
  std::vector<Field> fields;
  const auto place_constants = [&] {
    for (Message& node : std::exchange(edit.constants, {}))
      fields.push_back(wrapped(node_number, std::move(node)));
  };
  const auto replace = [&](Field& field) {
    const auto found = edit.replaced.find(&field.open());
    if (found != edit.replaced.end()) field = wrapped(field.number, std::move(found->second));
  };
  for (Field& field : scope.fields()) {
    if (field.number == node_number) {
      if (edit.dead_nodes.contains(&field.open())) continue;
      place_constants();
      replace(field);
    } else if (!edit.is_function && field.number == g::kInitializer) {
      if (edit.dead_constants.contains(field.open().text(field::tensor::kName))) continue;
      replace(field);
    } else if (field.number == info_number &&
               edit.forgotten.contains(field.open().text(field::value_info::kName))) {
      continue;
    }
    fields.push_back(std::move(field));
  }
  for (Message& initializer : edit.initializers)
    fields.push_back(wrapped(g::kInitializer, std::move(initializer)));
  scope.replace(std::move(fields));
}

}  // namespace mezzo::convert
