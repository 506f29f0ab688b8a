#include "convert/rewrite/apply.h"

#include <algorithm>
#include <utility>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/editor.h"

namespace mezzo::convert {

void Editor::run() {
  Message& model = document_.model();
  Message& main = model.find(field::model::kGraph)->open();
  has_training_ = model.find(field::model::kTrainingInfo) != nullptr;
  for (Field& field : model.fields()) {
    if (field.number == field::model::kFunctions) {
      function_names_.emplace(field.open().text(field::function::kName));
    }
  }
  settle_weights_only();
  settle_bounds();
  edit_tree(0, main);
  for (auto& function : new_functions_) model.add(field::model::kFunctions, std::move(function));
}

void Editor::index_uses() {
  use_of_input_.resize(graph_.nodes.size());
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
    use_of_input_[n].assign(graph_.nodes[n].inputs.size(), 0);
  for (const Value& value : graph_.values) {
    for (std::size_t u = 0; u < value.uses.size(); ++u) {
      const Use& use = value.uses[u];
      if (use.node == kNone) continue;
      use_of_input_[static_cast<std::size_t>(use.node)][static_cast<std::size_t>(use.input)] = u;
    }
  }
}

bool Editor::wants(ValueId id, Label label) const {
  const auto& uses = decisions_.map.uses[static_cast<std::size_t>(id)];
  return std::ranges::any_of(uses, [&](Slot slot) {
    return slot != kNoSlot && decisions_.is_low(slot) == (label == Label::kLow);
  });
}

bool Editor::is_constant(ValueId id) const {
  return decisions_.map.is_constant[static_cast<std::size_t>(id)];
}

std::string Editor::suffix(bool low) const {
  if (!low) return "__f32";
  return low_ == Element::kFloat16 ? "__f16" : "__bf16";
}

std::optional<bool> Editor::output_label(ValueId id) const {
  // Only the model's own outputs have names that somebody outside knows.
  const Value& value = graph_.value(id);
  for (std::size_t u = 0; u < value.uses.size(); ++u) {
    if (value.uses[u].node == kNone && value.uses[u].scope == 0) {
      return decisions_.is_low_use(id, u);
    }
  }
  return std::nullopt;
}

void Editor::name_values(ScopeId id, Names& names) {
  const Scope& scope = graph_.scope(id);
  const auto handle = [&](ValueId value) {
    if (value != kNone && is_float_based(graph_.value(value).type)) name_value(value, names);
  };
  for (const ValueId value : ordered_values(scope)) handle(value);
  for (const NodeId node : scope.nodes) {
    for (const Body& body : graph_.node(node).bodies) name_values(body.scope, names);
  }
}

std::vector<ValueId> Editor::ordered_values(const Scope& scope) const {
  std::vector<ValueId> values;
  for (const auto& [name, id] : scope.names) values.push_back(id);
  std::ranges::sort(values);
  return values;
}

void Editor::name_value(ValueId id, Names& names) {
  if (is_emulated()) return name_emulated(id, names);
  const Value& value = graph_.value(id);
  Twins& twins = twins_[static_cast<std::size_t>(id)];
  const bool made_low = is_constant(id) ? stored_low(id) : decisions_.is_low_value(id);
  const bool needs_other = wants(id, made_low ? Label::kHigh : Label::kLow);
  std::string_view& own = made_low ? twins.low : twins.high;
  std::string_view& other = made_low ? twins.high : twins.low;
  own = value.name;
  if (!needs_other) return;
  if (!made_low && low_source(graph_, id, low_) != kNone) {
    // Up and down again is the identity: read what the Cast reads.
    const ValueId source = low_source(graph_, id, low_);
    if (output_label(id) != std::optional(true) && !is_handed_on(id, source)) {
      twins.low = graph_.value(source).name;
      return;
    }
  }
  const std::optional<bool> output = output_label(id);
  if (output && *output != made_low) {
    other = value.name;
    own = document_.keep(names.take(concat({value.name, suffix(made_low)})));
    changes_.renamed.emplace(own, value.name);
  } else {
    other = document_.keep(names.take(concat({value.name, suffix(!made_low)})));
  }
}

// Runtimes refuse a body that gives a value of the scope around it.
bool Editor::is_handed_on(ValueId id, ValueId source) const {
  const Value& from = graph_.value(source);
  const auto& uses = graph_.value(id).uses;
  for (std::size_t u = 0; u < uses.size(); ++u) {
    if (uses[u].node != kNone || uses[u].scope == 0 || !decisions_.is_low_use(id, u)) continue;
    if (from.scope != uses[u].scope || from.producer == kNone) return true;
  }
  return false;
}

void Editor::edit_tree(ScopeId root, Message& target) {
  Names names(graph_, root);
  names_ = &names;
  name_values(root, names);
  edit_scope(root, target);
}

void Editor::edit_scope(ScopeId id, Message& target) {
  const Scope& scope = graph_.scope(id);
  const bool is_function = scope.kind == ScopeKind::kFunction;
  const std::uint32_t node_number = is_function ? field::function::kNode : field::graph::kNode;
  std::vector<Field> initializers;
  std::vector<Message> first;  // nodes before all others
  for (const ValueId value : ordered_values(scope)) {
    if (graph_.value(value).producer == kNone) outside_value(value, first, initializers);
  }
  std::vector<Field> fields;
  std::size_t position = 0;
  std::size_t output = 0;
  bool placed = false;
  const auto place_first = [&] {
    if (std::exchange(placed, true)) return;
    for (Message& node : first) fields.push_back(made(node_number, std::move(node)));
  };
  bool changed = !first.empty() || !initializers.empty();
  for (Field& field : target.fields()) {
    const bool is_initializer = !is_function && field.number == field::graph::kInitializer;
    if (is_initializer && !edit_initializer(scope, field)) {
      changed = true;
      continue;
    }
    if (!is_function && field.number == field::graph::kInput) edit_info(scope, field, true);
    if (field.number == (is_function ? field::function::kOutput : field::graph::kOutput)) {
      edit_output(id, field, output++);
    }
    if (field.number == (is_function ? field::function::kValueInfo : field::graph::kValueInfo)) {
      edit_info(scope, field, false);
    }
    if (field.number != node_number) {
      fields.push_back(std::move(field));
      continue;
    }
    place_first();
    const NodeId node = scope.nodes[position++];
    if (is_dead(graph_.node(node))) {
      changed = true;
      continue;
    }
    std::vector<Message> after;
    edit_node(node, field.open(), after);
    fields.push_back(std::move(field));
    changed = changed || !after.empty();
    for (Message& added : after) fields.push_back(made(node_number, std::move(added)));
  }
  place_first();
  for (Field& initializer : initializers) fields.push_back(std::move(initializer));
  for (Message& info : std::exchange(old_casts_, {})) {
    fields.push_back(made(is_function ? field::function::kValueInfo : field::graph::kValueInfo,
                          std::move(info)));
  }
  if (changed) {
    target.replace(std::move(fields));
  } else {
    target.fields() = std::move(fields);
  }
}

// A Cast up that the model brought, all of whose readers read now what it reads.
bool Editor::is_dead(const Node& node) const {
  const ValueId out = node.op != "Cast" || node.outputs.empty() ? kNone : node.outputs[0];
  if (out == kNone || is_emulated() || has_training_ || output_label(out).has_value()) return false;
  const ValueId source = low_source(graph_, out, low_);
  const auto& uses = decisions_.map.uses[static_cast<std::size_t>(out)];
  return source != kNone && !uses.empty() && twins(out).low == graph_.value(source).name &&
         std::ranges::all_of(uses, [&](Slot slot) { return decisions_.is_low(slot); });
}

Field Editor::made(std::uint32_t number, Message message) {
  Field field;
  field.number = number;
  field.wire = Wire::kBytes;
  field.message = std::make_unique<Message>(std::move(message));
  return field;
}

void Editor::replace(Field& field, Message message) {
  field.message = std::make_unique<Message>(std::move(message));
  field.raw = {};
}

void Editor::edit_info(const Scope& scope, Field& field, bool is_input) {
  if (is_emulated()) return;
  Message& info = field.open();
  const std::string_view name = info.text(field::value_info::kName);
  const auto found = scope.names.find(name);
  if (found == scope.names.end()) return;
  const ValueId id = found->second;
  if (!is_float_based(graph_.value(id).type)) return;
  const Twins& names = twins(id);
  if (is_constant(id) && is_stored_low_only(id)) {
    // Up to IR 3 weights are inputs too.
    if (!is_input) return;
    info.set(field::value_info::kName, names.low);
    return set_element(info.find(field::value_info::kType));
  }
  const bool is_renamed_input =
      is_input && is_constant(id) && name != names.low && name != names.high;
  if (is_renamed_input) info.set(field::value_info::kName, names.high);
  if (name == names.low && name != names.high) set_element(info.find(field::value_info::kType));
}

void Editor::edit_output(ScopeId id, Field& field, std::size_t index) {
  const Scope& scope = graph_.scope(id);
  const ValueId out = scope.outputs[index];
  if (is_emulated() && id == 0) return;
  const Value& value = graph_.value(out);
  if (!is_float_based(value.type)) return;
  for (std::size_t u = 0; u < value.uses.size(); ++u) {
    const Use& use = value.uses[u];
    if (use.node != kNone || use.scope != id || use.input != static_cast<int>(index)) continue;
    const bool low = decisions_.is_low_use(out, u);
    const std::string_view name = name_for(out, low);
    if (scope.kind == ScopeKind::kFunction) {
      if (!name.empty() && name != field.bytes) field.set_bytes(name);
      return;
    }
    Message& info = field.open();
    if (!name.empty() && name != info.text(field::value_info::kName)) {
      info.set(field::value_info::kName, name);
    }
    if (low && !is_emulated()) set_element(info.find(field::value_info::kType));
  }
}

void Editor::set_element(Field* type) {
  if (type == nullptr) return;
  for (const std::uint32_t container : {field::type::kSequence, field::type::kOptional}) {
    if (Field* outer = type->open().find(container)) {
      return set_element(outer->open().find(field::container_type::kElement));
    }
  }
  Field* tensor = type->open().find(field::type::kTensor);
  if (tensor == nullptr) return;
  if (tensor->open().number(field::tensor_type::kElement) ==
      static_cast<std::uint64_t>(Element::kFloat)) {
    tensor->open().set(field::tensor_type::kElement, static_cast<std::uint64_t>(low_));
  }
}

std::string_view Editor::name_for(ValueId id, bool low) const {
  const Twins& names = twins(id);
  return low ? names.low : names.high;
}

Changes apply(Document& document, const Graph& graph, const Decisions& decisions,
              Constants& constants, Element low, Storage storage) {
  Changes changes;
  Editor(document, graph, decisions, constants, low, storage, changes).run();
  return changes;
}

}  // namespace mezzo::convert
