// Constants: which are stored in the low type, and their copies.
#include <algorithm>
#include <array>
#include <utility>

#include "convert/decide/pins/objections.h"
#include "convert/decide/pins/quantised.h"
#include "convert/graph/graph_edits.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/editor.h"
#include "convert/standard/low_forms.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kWorthStoringLow =
    32;  // elements; below that a Cast costs more than it saves

}  // namespace

bool Editor::stored_low(ValueId id) const {
  const Value& value = graph_.value(id);
  if (!is_stored_rounded(id) || is_emulated()) return false;
  if (has_training_ && value.producer == kNone) return false;
  return wants(id, Label::kLow) && !wants(id, Label::kHigh);
}

void Editor::outside_value(ValueId id, std::vector<Message>& first,
                           std::vector<Field>& initializers) {
  const Value& value = graph_.value(id);
  if (!is_float_based(value.type)) return;
  const Twins& names = twins(id);
  if (is_emulated()) return outside_emulated(id, first);
  if (is_constant(id)) {
    count_weight(id);
    if (is_stored_low_only(id)) return weights_only(id, first);
  }
  if (names.high.empty() || names.low.empty()) return;
  const bool made_low = is_constant(id) ? stored_low(id) : decisions_.is_low_value(id);
  if (is_constant(id) && is_stored_rounded(id) && !made_low) {
    ++changes_.duplicated_weights;
    ++changes_.low_weights;
    count_rounding(id);
    Message tensor = rounded_constant(id, names.low);
    if (graph_.ir_version >= 4) {
      initializers.push_back(made(field::graph::kInitializer, std::move(tensor)));
    } else {
      first.push_back(constant_node(names.low, std::move(tensor)));
    }
    return;
  }
  first.push_back(cast_node(id, made_low));
}

// The low tensor takes a name of its own, and a Cast the one that readers know.
void Editor::weights_only(ValueId id, std::vector<Message>& casts) {
  const Value& value = graph_.value(id);
  ++changes_.low_weights;
  count_rounding(id);
  std::string_view& name = twins_[static_cast<std::size_t>(id)].low;
  name = document_.keep(names_->take(concat({value.name, suffix(true)})));
  casts.push_back(cast_message(name, value.name, Element::kFloat, value.scope));
  report_cast(value, true, "weight stored in 16 bits");
}

void Editor::settle_weights_only() {
  if (storage_ != Storage::kWeightsOnly) return;
  stored_low_only_.resize(graph_.values.size());
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const auto id = static_cast<ValueId>(v);
    stored_low_only_[v] = is_constant(id) && may_be_stored_low_only(id);
  }
}

bool Editor::may_be_stored_low_only(ValueId id) {
  const Value& value = graph_.value(id);
  if (has_training_ && value.producer == kNone) return false;
  if (!has_cast_to(low_, graph_.scope(value.scope).opset(""))) return false;
  if (output_label(id).has_value()) return false;
  if (constants_.count(id) < kWorthStoringLow) return false;
  for (const Use& use : value.uses) {
    if (use.node == kNone) {  // given by a body, to whoever reads it
      if (!range_objection("", constants_.facts(id), low_).empty()) return false;
      continue;
    }
    const Node& reader = graph_.node(use.node);
    if (stays_float(reader) || keeps_digits(use)) return false;
    if (!objection(graph_, constants_, id, reader, use.input, low_, decisions_.allowed).empty())
      return false;
  }
  return true;
}

// Scales of integers, and what an operator takes in float32 alone.
bool Editor::keeps_digits(const Use& use) {
  const Node& reader = graph_.node(use.node);
  constexpr std::array<std::string_view, 8> kOfIntegers{
      "Quant", "QLinear", "QAttention", "QEmbed", "QGemm", "QOrdered", "IntegerToFloat", "NBits"};
  // Asked once per node: a reader may have very many weights.
  const auto [known, is_new] = quantised_.try_emplace(use.node);
  if (is_new) known->second = is_quantised(graph_, reader);
  if (known->second) return true;
  if (std::ranges::any_of(kOfIntegers, [&](std::string_view part) {
        return reader.op.find(part) != std::string_view::npos;
      }))
    return true;
  if (reader.schema == nullptr) return false;
  const Formal* formal = reader.schema->input(static_cast<std::size_t>(use.input));
  return formal != nullptr && reader.schema->variable_of(*formal).is_fixed;
}

bool Editor::stays_float(const Node& reader) const {
  const auto& keys = decisions_.float_weights;
  return !keys.empty() && std::ranges::binary_search(keys, graph_.key_of(reader));
}

void Editor::count_weight(ValueId id) {
  ++changes_.weights;
  if (storage_ != Storage::kWeightsOnly && stored_low(id)) {
    ++changes_.low_weights;
    count_rounding(id);
  }
}

void Editor::count_rounding(ValueId id) {
  ConstantFacts facts = constants_.facts(id);
  const Bounds bounds = bounds_of(id);
  if (bounds.least != 0) facts.vanishing = 0;
  if (bounds.most <= largest(low_)) facts.overflowing = 0;
  count_rounding(facts);
}

void Editor::count_rounding(const ConstantFacts& facts) {
  changes_.flushed_values += static_cast<std::int64_t>(facts.vanishing);
  changes_.infinite_values += static_cast<std::int64_t>(facts.overflowing);
}

Message Editor::constant_node(std::string_view output, Message tensor) {
  return convert::constant_node(output, document_.keep(names_->take(concat({"Constant_", output}))),
                                std::move(tensor));
}

bool Editor::edit_initializer(const Scope& scope, Field& field) {
  if (is_emulated()) return true;
  const std::string_view name = field.open().text(field::tensor::kName);
  const auto found = scope.names.find(name);
  if (found == scope.names.end() || !is_float_based(graph_.value(found->second).type)) return true;
  const ValueId id = found->second;
  if (is_constant(id)) {
    // The low twin takes its place; the Cast takes its name.
    if (is_stored_low_only(id) || stored_low(id)) {
      replace(field, rounded_constant(id, twins(id).low));
    } else {
      rename_tensor(field, name, twins(id).high);
    }
  } else if (graph_.value(id).is_scope_input && decisions_.is_low_value(id) &&
             is_float_tensor(field.open())) {
    replace(field, rounded_tensor(document_, field.open(), low_, ""));
  }
  return true;
}

void Editor::rename_tensor(Field& field, std::string_view before, std::string_view after) {
  if (!after.empty() && before != after) field.open().set(field::tensor::kName, after);
}

std::unique_ptr<Message> Editor::zero_value() const {
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

void Editor::edit_constant_node(const Node& node, Message& message, std::vector<Message>& after) {
  const ValueId out = node.outputs[0];
  const Twins& names = twins(out);
  count_weight(out);
  const bool is_low_only = is_stored_low_only(out);
  if (is_low_only) weights_only(out, after);
  const bool stored = is_low_only || stored_low(out);
  if (stored) retype_constant(node, message);
  const std::string_view name = stored ? names.low : names.high;
  Field* output = message.find(field::node::kOutput);
  if (!name.empty() && output->bytes != name) output->set_bytes(name);
  if (is_low_only || names.high.empty() || names.low.empty()) return;
  if (is_stored_rounded(out) && !stored) {
    ++changes_.duplicated_weights;
    ++changes_.low_weights;
    count_rounding(out);
    after.push_back(constant_node(names.low, rounded_value(node)));
  } else {
    after.push_back(cast_node(out, stored));
  }
}

Message Editor::rounded_value(const Node& node) {
  if (graph_.constant(node.outputs[0]) != nullptr) return rounded_constant(node.outputs[0], "");
  const std::vector<float> values = *listed_floats(graph_, node);
  Message tensor;
  if (graph_.attribute(node, "value_floats") != nullptr) {
    tensor.add(field::tensor::kDims, std::uint64_t{values.size()});
  }
  tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
  const std::string_view bytes = document_.keep(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  tensor.add(field::tensor::kRawData, bytes);
  return rounded_tensor(document_, tensor, low_, "", bounds_of(node.outputs[0]));
}

Message Editor::rounded_constant(ValueId id, std::string_view name) {
  return rounded_tensor(document_, *graph_.constant(id), low_, name, bounds_of(id));
}

void Editor::retype_constant(const Node& node, Message& message) {
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

}  // namespace mezzo::convert
