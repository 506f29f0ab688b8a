// Nodes: renamed inputs and outputs, attributes that name a type, Casts, calls of functions.
#include <algorithm>
#include <utility>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/editor.h"

namespace mezzo::convert {

void Editor::report_cast(const Value& value, bool from_low, std::string_view reason) {
  const std::string low(name_of(low_));
  changes_.casts.push_back({std::string(value.name), graph_.path_of(value.scope),
                            from_low ? low : "float32", from_low ? "float32" : low,
                            std::string(reason)});
}

Message Editor::cast_node(ValueId id, bool from_low) {
  const Value& value = graph_.value(id);
  const Twins& names = twins(id);
  std::string reader = "an output";
  for (std::size_t u = 0; u < value.uses.size(); ++u) {
    if (value.uses[u].node == kNone) continue;
    if (decisions_.is_low_use(id, u) != from_low) {
      reader = graph_.describe(graph_.node(value.uses[u].node));
      break;
    }
  }
  report_cast(value, from_low, concat({"read by ", reader}));
  return from_low ? cast_message(names.low, names.high, Element::kFloat, value.scope)
                  : cast_message(names.high, names.low, low_, value.scope);
}

Message Editor::cast_message(std::string_view from, std::string_view to, Element element,
                             ScopeId scope) {
  Message attribute;
  attribute.add(field::attribute::kName, std::string_view("to"));
  if (graph_.scope(scope).opset("") < 6) {
    // Until opset 5 the type was a text: FLOAT, FLOAT16.
    attribute.add(field::attribute::kString,
                  std::string_view(element == Element::kFloat ? "FLOAT" : "FLOAT16"));
    attribute.add(field::attribute::kType, field::attribute_type::kString);
    if (!is_output(to)) declare(to, element);
  } else {
    attribute.add(field::attribute::kInt, static_cast<std::uint64_t>(element));
    attribute.add(field::attribute::kType, field::attribute_type::kInt);
  }
  Message node;
  node.add(field::node::kInput, from);
  node.add(field::node::kOutput, to);
  node.add(field::node::kName, document_.keep(names_->take(concat({"Cast_", to}))));
  node.add(field::node::kOpType, std::string_view("Cast"));
  node.add(field::node::kAttribute, std::make_unique<Message>(std::move(attribute)));
  return node;
}

bool Editor::is_output(std::string_view name) const {
  return std::ranges::any_of(graph_.scope(0).outputs,
                             [&](ValueId id) { return graph_.value(id).name == name; });
}

void Editor::declare(std::string_view name, Element element) {
  auto tensor = std::make_unique<Message>();
  tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(element));
  auto type = std::make_unique<Message>();
  type->add(field::type::kTensor, std::move(tensor));
  Message info;
  info.add(field::value_info::kName, name);
  info.add(field::value_info::kType, std::move(type));
  old_casts_.push_back(std::move(info));
}

void Editor::edit_node(NodeId id, Message& message, std::vector<Message>& after) {
  const Node& node = graph_.node(id);
  rename_inputs(id, node, message);
  edit_outputs(node, message, after);
  raise_bound(id, node, message);
  edit_bodies(node, message);
  if (node.instance != kNone) specialise(node, message);
}

void Editor::rename_inputs(NodeId id, const Node& node, Message& message) {
  std::size_t index = 0;
  for (Field& field : message.fields()) {
    if (field.number != field::node::kInput) continue;
    const std::size_t i = index++;
    const ValueId in = i < node.inputs.size() ? node.inputs[i] : kNone;
    if (in == kNone || !is_float_based(graph_.value(in).type)) continue;
    const std::size_t use = use_of_input_[static_cast<std::size_t>(id)][i];
    const std::string_view name = name_for(in, decisions_.is_low_use(in, use));
    if (!name.empty() && name != field.bytes) field.set_bytes(name);
  }
}

void Editor::edit_outputs(const Node& node, Message& message, std::vector<Message>& after) {
  if (is_emulated()) return outputs_emulated(node, message, after);
  const bool is_stored = std::ranges::any_of(
      node.outputs, [&](ValueId out) { return out != kNone && is_constant(out); });
  if (is_stored) return edit_constant_node(node, message, after);
  std::size_t index = 0;
  bool any_low = false;
  for (Field& field : message.fields()) {
    if (field.number != field::node::kOutput) continue;
    const ValueId out = node.outputs[index++];
    if (out == kNone || !is_float_based(graph_.value(out).type)) continue;
    const bool low = decisions_.is_low_value(out);
    const std::string_view name = name_for(out, low);
    if (name != field.bytes) field.set_bytes(name);
    any_low = any_low || low;
    const Twins& names = twins(out);
    const bool has_both = !names.high.empty() && !names.low.empty();
    const ValueId source = low ? kNone : low_source(graph_, out, low_);
    const bool is_elided = source != kNone && names.low == graph_.value(source).name;
    if (has_both && !is_elided) after.push_back(cast_node(out, low));
  }
  if (any_low) set_output_type(node, message);  // it may add a field: not while they are walked
}

void Editor::set_output_type(const Node& node, Message& message) {
  const bool named = node.op == "Cast" || node.op == "EyeLike" || node.op == "SequenceEmpty";
  if (!node.domain.empty() || (!named && node.op != "ConstantOfShape")) return;
  const std::string_view name = node.op == "Cast"              ? "to"
                                : node.op == "ConstantOfShape" ? "value"
                                                               : "dtype";
  for (Field& field : message.fields()) {
    if (field.number != field::node::kAttribute) continue;
    Message& attribute = field.open();
    if (attribute.text(field::attribute::kName) != name) continue;
    if (name == "value") {
      Field* tensor = attribute.find(field::attribute::kTensor);
      if (tensor == nullptr) return;
      count_rounding(constants_.facts_of(tensor->open()));
      replace(*tensor, rounded_tensor(document_, tensor->open(), low_, ""));
    } else if (attribute.find(field::attribute::kString) != nullptr) {
      attribute.set(field::attribute::kString, std::string_view("FLOAT16"));
    } else {
      attribute.set(field::attribute::kInt, static_cast<std::uint64_t>(low_));
    }
    return;
  }
  if (node.op == "ConstantOfShape") message.add(field::node::kAttribute, zero_value());
  if (node.op == "SequenceEmpty") {
    auto attribute = std::make_unique<Message>();
    attribute->add(field::attribute::kName, std::string_view("dtype"));
    attribute->add(field::attribute::kInt, static_cast<std::uint64_t>(low_));
    attribute->add(field::attribute::kType, field::attribute_type::kInt);
    message.add(field::node::kAttribute, std::move(attribute));
  }
}

void Editor::edit_bodies(const Node& node, Message& message) {
  std::size_t index = 0;
  for (Field& field : message.fields()) {
    if (field.number != field::node::kAttribute) continue;
    for (Field& graph : field.open().fields()) {
      if (graph.number != field::attribute::kGraph && graph.number != field::attribute::kGraphs)
        continue;
      edit_scope(node.bodies[index++].scope, graph.open());
    }
  }
}

void Editor::specialise(const Node& node, Message& message) {
  const Scope& body = graph_.scope(node.instance);
  Names* outer = names_;
  Message copy = body.message->clone();
  edit_tree(node.instance, copy);
  names_ = outer;
  if (copy.is_clean()) return;
  StringSink bytes;
  copy.write(bytes);
  auto [found, is_new] = specialised_.try_emplace(std::move(bytes.text));
  if (is_new) {
    std::string name = concat({node.op, suffix(true)});
    for (int i = 1; !function_names_.insert(name).second; ++i) {
      name = concat({node.op, suffix(true), "_", std::to_string(i)});
    }
    found->second = document_.keep(std::move(name));
    copy.set(field::function::kName, found->second);
    new_functions_.push_back(std::make_unique<Message>(std::move(copy)));
  }
  message.set(field::node::kOpType, found->second);
}

}  // namespace mezzo::convert
