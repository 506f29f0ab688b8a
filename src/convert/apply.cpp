#include "convert/apply.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "convert/concat.h"
#include "convert/fields.h"
#include "convert/names.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kWorthStoringLow =
    32;  // elements; below that a Cast costs more than it saves

// How a value is called in each type after the conversion. Empty: not there in that type.
struct Twins {
  std::string_view high, low;
};

// One tree of scopes that is edited: the main graph, or one instance of a function.
class Editor {
 public:
  Editor(Document& document, const Graph& graph, const Decisions& decisions, Constants& constants,
         Element low, Storage storage, Changes& changes)
      : document_(document),
        graph_(graph),
        decisions_(decisions),
        constants_(constants),
        low_(low),
        storage_(storage),
        changes_(changes),
        twins_(graph.values.size()) {}

  void run() {
    Message& model = document_.model();
    Message& main = model.find(field::model::kGraph)->open();
    has_training_ = model.find(field::model::kTrainingInfo) != nullptr;
    for (Field& field : model.fields()) {
      if (field.number == field::model::kFunctions) {
        function_names_.emplace(field.open().text(field::function::kName));
      }
    }
    edit_tree(0, main);
    for (auto& function : new_functions_) model.add(field::model::kFunctions, std::move(function));
  }

 private:
  bool wants(ValueId id, Label label) const {
    const auto& uses = decisions_.map.uses[static_cast<std::size_t>(id)];
    return std::ranges::any_of(uses, [&](Slot slot) {
      return slot != kNoSlot && decisions_.is_low(slot) == (label == Label::kLow);
    });
  }

  bool is_constant(ValueId id) const {
    return decisions_.map.is_constant[static_cast<std::size_t>(id)];
  }

  std::string suffix(bool low) const {
    if (!low) return "__f32";
    return low_ == Element::kFloat16 ? "__f16" : "__bf16";
  }

  // The type in which outputs of the model demand the value, if they do.
  std::optional<bool> output_label(ValueId id) const {
    // Only the model's own outputs have names that somebody outside knows.
    const Value& value = graph_.value(id);
    for (std::size_t u = 0; u < value.uses.size(); ++u) {
      if (value.uses[u].node == kNone && value.uses[u].scope == 0) {
        return decisions_.is_low_use(id, u);
      }
    }
    return std::nullopt;
  }

  // Names of every value of the tree, before anything is edited: bodies look up values of the
  // scopes around them.
  void name_values(ScopeId id, Names& names) {
    const Scope& scope = graph_.scope(id);
    const auto handle = [&](ValueId value) {
      if (value != kNone && is_float_based(graph_.value(value).type)) name_value(value, names);
    };
    for (const ValueId value : ordered_values(scope)) handle(value);
    for (const NodeId node : scope.nodes) {
      for (const Body& body : graph_.node(node).bodies) name_values(body.scope, names);
    }
  }

  // Inputs, initializers, outputs of nodes: in file order.
  std::vector<ValueId> ordered_values(const Scope& scope) const {
    std::vector<ValueId> values;
    for (const auto& [name, id] : scope.names) values.push_back(id);
    std::ranges::sort(values);
    return values;
  }

  void name_value(ValueId id, Names& names) {
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
      if (output_label(id) != std::optional(true)) {
        twins.low = graph_.value(source).name;
        return;
      }
    }
    const std::optional<bool> output = output_label(id);
    if (output && *output != made_low) {
      other = value.name;
      own = document_.keep(names.take(concat({value.name, suffix(made_low)})));
    } else {
      other = document_.keep(names.take(concat({value.name, suffix(!made_low)})));
    }
  }

  // Is the constant, under its own name, of the low type afterwards?
  bool stored_low(ValueId id) const {
    const Value& value = graph_.value(id);
    if (storage_ != Storage::kConverted) return false;
    if (has_training_ && value.producer == kNone) return false;
    return wants(id, Label::kLow) && !wants(id, Label::kHigh);
  }

  void edit_tree(ScopeId root, Message& target) {
    Names names(graph_, root);
    names_ = &names;
    name_values(root, names);
    edit_scope(root, target);
  }

  void edit_scope(ScopeId id, Message& target) {
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

  static Field made(std::uint32_t number, Message message) {
    Field field;
    field.number = number;
    field.wire = Wire::kBytes;
    field.message = std::make_unique<Message>(std::move(message));
    return field;
  }

  const Twins& twins(ValueId id) const { return twins_[static_cast<std::size_t>(id)]; }

  // Inputs and initializers: their other type is made at the start of the scope.
  void outside_value(ValueId id, std::vector<Message>& first, std::vector<Field>& initializers) {
    const Value& value = graph_.value(id);
    if (!is_float_based(value.type)) return;
    const Twins& names = twins(id);
    if (is_constant(id)) {
      count_weight(id);
      if (storage_ == Storage::kWeightsOnly) return weights_only(id, first, initializers);
    }
    if (names.high.empty() || names.low.empty()) return;
    const bool made_low = is_constant(id) ? stored_low(id) : decisions_.is_low_value(id);
    if (is_constant(id) && storage_ == Storage::kConverted && !made_low) {
      ++changes_.duplicated_weights;
      ++changes_.low_weights;
      count_rounding(id);
      Message tensor = rounded_tensor(document_, *value.initializer, low_, names.low);
      if (graph_.ir_version >= 4) {
        initializers.push_back(made(field::graph::kInitializer, std::move(tensor)));
      } else {
        first.push_back(constant_node(names.low, std::move(tensor)));
      }
      return;
    }
    first.push_back(cast_node(id, made_low));
  }

  void weights_only(ValueId id, std::vector<Message>& first, std::vector<Field>& initializers) {
    const Value& value = graph_.value(id);
    if (!is_stored_low_only(id)) return;
    ++changes_.low_weights;
    count_rounding(id);
    const std::string_view name = document_.keep(names_->take(concat({value.name, suffix(true)})));
    initializers.push_back(made(field::graph::kInitializer,
                                rounded_tensor(document_, *value.initializer, low_, name)));
    first.push_back(cast_message(name, value.name, Element::kFloat, value.scope));
    report_cast(value, true, "weight stored in 16 bits");
  }

  bool is_stored_low_only(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.origin != Origin::kInitializer || graph_.ir_version < 4 || has_training_)
      return false;
    if (output_label(id).has_value()) return false;
    if (constants_.count(id) < kWorthStoringLow) return false;
    for (const Use& use : value.uses) {
      if (use.node == kNone) continue;
      if (!objection(graph_, constants_, id, graph_.node(use.node), use.input, low_).empty())
        return false;
    }
    return true;
  }

  void count_weight(ValueId id) {
    ++changes_.weights;
    if (storage_ != Storage::kWeightsOnly && stored_low(id)) {
      ++changes_.low_weights;
      count_rounding(id);
    }
  }

  void count_rounding(ValueId id) {
    const ConstantFacts& facts = constants_.facts(id);
    changes_.flushed_values += static_cast<std::int64_t>(facts.vanishing);
    changes_.infinite_values += static_cast<std::int64_t>(facts.overflowing);
  }

  void report_cast(const Value& value, bool from_low, std::string_view reason) {
    const std::string low(name_of(low_));
    changes_.casts.push_back({std::string(value.name), graph_.scope(value.scope).path,
                              from_low ? low : "float32", from_low ? "float32" : low,
                              std::string(reason)});
  }

  Message cast_node(ValueId id, bool from_low) {
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

  Message cast_message(std::string_view from, std::string_view to, Element element, ScopeId scope) {
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

  bool is_output(std::string_view name) const {
    return std::ranges::any_of(graph_.scope(0).outputs,
                               [&](ValueId id) { return graph_.value(id).name == name; });
  }

  // Readers of old models infer nothing through a Cast that names its type.
  void declare(std::string_view name, Element element) {
    auto tensor = std::make_unique<Message>();
    tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(element));
    auto type = std::make_unique<Message>();
    type->add(field::type::kTensor, std::move(tensor));
    Message info;
    info.add(field::value_info::kName, name);
    info.add(field::value_info::kType, std::move(type));
    old_casts_.push_back(std::move(info));
  }

  Message constant_node(std::string_view output, Message tensor) {
    Message attribute;
    attribute.add(field::attribute::kName, std::string_view("value"));
    attribute.add(field::attribute::kTensor, std::make_unique<Message>(std::move(tensor)));
    attribute.add(field::attribute::kType, field::attribute_type::kTensor);
    Message node;
    node.add(field::node::kOutput, output);
    node.add(field::node::kName, document_.keep(names_->take(concat({"Constant_", output}))));
    node.add(field::node::kOpType, std::string_view("Constant"));
    node.add(field::node::kAttribute, std::make_unique<Message>(std::move(attribute)));
    return node;
  }

  // Returns false where the initializer goes away.
  bool edit_initializer(const Scope& scope, Field& field) {
    const std::string_view name = field.open().text(field::tensor::kName);
    const auto found = scope.names.find(name);
    if (found == scope.names.end() || !is_float_based(graph_.value(found->second).type))
      return true;
    const ValueId id = found->second;
    if (is_constant(id)) {
      // The low twin takes its place; the Cast takes its name.
      if (storage_ == Storage::kWeightsOnly) return !is_stored_low_only(id);
      if (stored_low(id)) {
        replace(field, rounded_tensor(document_, field.open(), low_, twins(id).low));
      } else {
        rename_tensor(field, name, twins(id).high);
      }
    } else if (graph_.value(id).is_scope_input && decisions_.is_low_value(id)) {
      replace(field, rounded_tensor(document_, field.open(), low_, ""));
    }
    return true;
  }

  static void rename_tensor(Field& field, std::string_view before, std::string_view after) {
    if (!after.empty() && before != after) field.open().set(field::tensor::kName, after);
  }

  static void replace(Field& field, Message message) {
    field.message = std::make_unique<Message>(std::move(message));
    field.raw = {};
  }

  // Declared types of inputs, outputs and values in between.
  void edit_info(const Scope& scope, Field& field, bool is_input) {
    Message& info = field.open();
    const std::string_view name = info.text(field::value_info::kName);
    const auto found = scope.names.find(name);
    if (found == scope.names.end()) return;
    const ValueId id = found->second;
    if (!is_float_based(graph_.value(id).type)) return;
    const Twins& names = twins(id);
    const bool is_renamed_input =
        is_input && is_constant(id) && name != names.low && name != names.high;
    if (is_renamed_input) info.set(field::value_info::kName, names.high);
    if (name == names.low && name != names.high) set_element(info.find(field::value_info::kType));
  }

  // An output takes the name of the copy that has its type. The model's own outputs keep theirs.
  void edit_output(ScopeId id, Field& field, std::size_t index) {
    const Scope& scope = graph_.scope(id);
    const ValueId out = scope.outputs[index];
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
      if (low) set_element(info.find(field::value_info::kType));
    }
  }

  void set_element(Field* type) {
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

  std::string_view name_for(ValueId id, bool low) const {
    const Twins& names = twins(id);
    return low ? names.low : names.high;
  }

  void edit_node(NodeId id, Message& message, std::vector<Message>& after) {
    const Node& node = graph_.node(id);
    rename_inputs(id, node, message);
    edit_outputs(node, message, after);
    edit_bodies(node, message);
    if (node.instance != kNone) specialise(node, message);
  }

  void rename_inputs(NodeId id, const Node& node, Message& message) {
    std::size_t index = 0;
    for (Field& field : message.fields()) {
      if (field.number != field::node::kInput) continue;
      const std::size_t i = index++;
      const ValueId in = i < node.inputs.size() ? node.inputs[i] : kNone;
      if (in == kNone || !is_float_based(graph_.value(in).type)) continue;
      const Value& value = graph_.value(in);
      for (std::size_t u = 0; u < value.uses.size(); ++u) {
        if (value.uses[u].node != id || value.uses[u].input != static_cast<int>(i)) continue;
        const std::string_view name = name_for(in, decisions_.is_low_use(in, u));
        if (!name.empty() && name != field.bytes) field.set_bytes(name);
      }
    }
  }

  void edit_outputs(const Node& node, Message& message, std::vector<Message>& after) {
    const bool is_stored = std::ranges::any_of(
        node.outputs, [&](ValueId out) { return out != kNone && is_constant(out); });
    if (is_stored) return edit_constant_node(node, message, after);
    std::size_t index = 0;
    for (Field& field : message.fields()) {
      if (field.number != field::node::kOutput) continue;
      const ValueId out = node.outputs[index++];
      if (out == kNone || !is_float_based(graph_.value(out).type)) continue;
      const bool low = decisions_.is_low_value(out);
      const std::string_view name = name_for(out, low);
      if (name != field.bytes) field.set_bytes(name);
      if (low) set_output_type(node, message);
      const Twins& names = twins(out);
      const bool has_both = !names.high.empty() && !names.low.empty();
      const ValueId source = low ? kNone : low_source(graph_, out, low_);
      const bool is_elided = source != kNone && names.low == graph_.value(source).name;
      if (has_both && !is_elided) after.push_back(cast_node(out, low));
    }
  }

  // The attribute that says which type the output has.
  void set_output_type(const Node& node, Message& message) {
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
        if (tensor != nullptr)
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

  std::unique_ptr<Message> zero_value() const {
    auto tensor = std::make_unique<Message>();
    tensor->add(field::tensor::kDims, std::uint64_t{1});
    tensor->add(field::tensor::kType, static_cast<std::uint64_t>(low_));
    tensor->add(field::tensor::kRawData, std::string_view("\0\0", 2));
    auto attribute = std::make_unique<Message>();
    attribute->add(field::attribute::kName, std::string_view("value"));
    attribute->add(field::attribute::kTensor, std::move(tensor));
    attribute->add(field::attribute::kType, field::attribute_type::kTensor);
    return attribute;
  }

  void edit_constant_node(const Node& node, Message& message, std::vector<Message>& after) {
    const ValueId out = node.outputs[0];
    const Twins& names = twins(out);
    count_weight(out);
    const bool stored = stored_low(out);
    if (stored) retype_constant(node, message);
    const std::string_view name = stored ? names.low : names.high;
    Field* output = message.find(field::node::kOutput);
    if (!name.empty() && output->bytes != name) output->set_bytes(name);
    if (names.high.empty() || names.low.empty()) return;
    if (storage_ == Storage::kConverted && !stored) {
      ++changes_.duplicated_weights;
      ++changes_.low_weights;
      count_rounding(out);
      after.push_back(constant_node(names.low, rounded_value(node)));
    } else {
      after.push_back(cast_node(out, stored));
    }
  }

  // The node's value as a tensor of the low type.
  Message rounded_value(const Node& node) {
    if (const Message* tensor = graph_.constant(node.outputs[0])) {
      return rounded_tensor(document_, *tensor, low_, "");
    }
    const std::vector<float> values = *listed_floats(graph_, node);
    Message tensor;
    if (graph_.attribute(node, "value_floats") != nullptr) {
      tensor.add(field::tensor::kDims, std::uint64_t{values.size()});
    }
    tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
    const std::string_view bytes = document_.keep(
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    tensor.add(field::tensor::kRawData, bytes);
    return rounded_tensor(document_, tensor, low_, "");
  }

  void retype_constant(const Node& node, Message& message) {
    for (Field& field : message.fields()) {
      if (field.number != field::node::kAttribute) continue;
      Message& attribute = field.open();
      if (attribute.text(field::attribute::kName).substr(0, 5) != "value") continue;
      Message changed;
      changed.add(field::attribute::kName, std::string_view("value"));
      changed.add(field::attribute::kTensor, std::make_unique<Message>(rounded_value(node)));
      changed.add(field::attribute::kType, field::attribute_type::kTensor);
      replace(field, std::move(changed));
    }
  }

  void edit_bodies(const Node& node, Message& message) {
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

  // Calls of a function whose types changed go to a copy of it with these types.
  void specialise(const Node& node, Message& message) {
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

  Document& document_;
  const Graph& graph_;
  const Decisions& decisions_;
  Constants& constants_;
  Element low_;
  Storage storage_;
  Changes& changes_;
  std::vector<Twins> twins_;
  Names* names_ = nullptr;
  bool has_training_ = false;
  std::vector<Message> old_casts_;
  std::unordered_set<std::string> function_names_;
  std::map<std::string, std::string_view> specialised_;
  std::vector<std::unique_ptr<Message>> new_functions_;
};

}  // namespace

Changes apply(Document& document, const Graph& graph, const Decisions& decisions,
              Constants& constants, Element low, Storage storage) {
  Changes changes;
  Editor(document, graph, decisions, constants, low, storage, changes).run();
  return changes;
}

}  // namespace mezzo::convert
