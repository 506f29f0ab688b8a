// The judge's model: all float32, with a pair of Casts wherever the converted model would round.
//
// A runtime that computes 16-bit chains in float32 and rounds at the end hides what hardware that
// stores every value in 16 bits would show; this model hides nothing, and runs if there is no
// 16-bit arithmetic at all.
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/editor.h"

namespace mezzo::convert {

bool Editor::is_rounded_where_made(ValueId id) const {
  const Value& value = graph_.value(id);
  if (is_constant(id) || !value.type.is_plain_tensor()) return false;
  return storage_ == Storage::kEmulated && decisions_.is_low_value(id);
}

void Editor::name_emulated(ValueId id, Names& names) {
  const Value& value = graph_.value(id);
  Twins& twins = twins_[static_cast<std::size_t>(id)];
  twins.high = twins.low = value.name;
  const bool is_made = value.producer != kNone;
  const bool reads_rounded = is_constant(id) || storage_ == Storage::kEmulated;
  if (is_rounded_where_made(id)) {
    // Outputs of nodes: the producer writes another name. Inputs: the readers read another one.
    if (!is_made)
      twins.high = twins.low = document_.keep(names.take(concat({value.name, "__rounded"})));
  } else if (reads_rounded && value.type.is_plain_tensor() && wants(id, Label::kLow)) {
    twins.low = document_.keep(names.take(concat({value.name, "__rounded"})));
  }
}

void Editor::round(std::string_view from, std::string_view to, ScopeId scope,
                   std::vector<Message>& nodes) {
  const std::string_view between = document_.keep(names_->take(concat({to, suffix(true)})));
  nodes.push_back(cast_message(from, between, low_, scope));
  nodes.push_back(cast_message(between, to, Element::kFloat, scope));
}

// A constant that is not only rounded is stored as it would be, and cast back.
void Editor::round_constant(ValueId id, std::vector<Message>& nodes) {
  const Value& value = graph_.value(id);
  const std::string_view to = twins(id).low;
  if (!bounds_.contains(id)) return round(value.name, to, value.scope, nodes);
  const std::string_view between = document_.keep(names_->take(concat({to, suffix(true)})));
  const bool is_listed = graph_.constant(id) == nullptr;
  nodes.push_back(constant_node(
      between, is_listed ? rounded_value(graph_.node(value.producer)) : rounded_constant(id, "")));
  nodes.push_back(cast_message(between, to, Element::kFloat, value.scope));
}

void Editor::outside_emulated(ValueId id, std::vector<Message>& first) {
  const Value& value = graph_.value(id);
  const std::string_view name = twins(id).low;
  if (name == value.name) return;
  is_constant(id) ? round_constant(id, first) : round(value.name, name, value.scope, first);
}

void Editor::outputs_emulated(const Node& node, Message& message, std::vector<Message>& after) {
  std::size_t index = 0;
  for (Field& field : message.fields()) {
    if (field.number != field::node::kOutput) continue;
    const ValueId out = node.outputs[index++];
    if (out == kNone || !is_float_based(graph_.value(out).type)) continue;
    const Value& value = graph_.value(out);
    if (is_rounded_where_made(out)) {
      const std::string_view raw = document_.keep(names_->take(concat({value.name, "__raw"})));
      field.set_bytes(raw);
      round(raw, value.name, value.scope, after);
    } else if (twins(out).low != value.name) {
      is_constant(out) ? round_constant(out, after)
                       : round(value.name, twins(out).low, value.scope, after);
    }
  }
}

}  // namespace mezzo::convert
