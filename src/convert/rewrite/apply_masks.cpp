// Masks that are beyond the low type's range: what is finite stays finite in their low copies.
#include <utility>

#include "convert/decide/pins/masks.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/rewrite/editor.h"

namespace mezzo::convert {
namespace {

// Scores that are added leave the range no more, whatever they are.
float farthest(Element low) {
  return static_cast<float>(largest(low) * (15.0 / 16));
}

}  // namespace

void Editor::settle_masks() {
  if (storage_ != Storage::kWeightsOnly) far_masks_ = far_masks(graph_, constants_, low_);
}

std::string_view Editor::bounded(ValueId id, std::string_view from, std::vector<Message>& nodes) {
  const Value& value = graph_.value(id);
  if (far_masks_.empty() || !far_masks_[static_cast<std::size_t>(id)]) return from;
  constexpr std::int64_t kFirstIsInf = 10, kFirstBoundsAsInputs = 11;
  const std::int64_t opset = graph_.scope(value.scope).opset("");
  if (opset < kFirstBoundsAsInputs) return from;
  const auto named = [&](std::string_view suffix) {
    return document_.keep(names_->take(concat({value.name, suffix})));
  };
  const auto number = [&](float bound) {
    Message tensor;
    tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
    tensor.add(field::tensor::kRawData,
               document_.keep(std::string(reinterpret_cast<const char*>(&bound), sizeof bound)));
    const std::string_view name = named(bound < 0 ? "__lowest" : "__highest");
    nodes.push_back(constant_node(name, std::move(tensor)));
    return name;
  };
  const auto node = [&](std::string_view op, std::initializer_list<std::string_view> inputs,
                        std::string_view output) {
    Message message;
    for (const std::string_view in : inputs) message.add(field::node::kInput, in);
    message.add(field::node::kOutput, output);
    message.add(field::node::kName, document_.keep(names_->take(concat({op, "_", output}))));
    message.add(field::node::kOpType, op);
    nodes.push_back(std::move(message));
    return output;
  };
  const std::string_view lowest = number(-farthest(low_));
  const std::string_view highest = number(farthest(low_));
  const std::string_view clipped = node("Clip", {from, lowest, highest}, named("__clipped"));
  static_assert(kFirstIsInf < kFirstBoundsAsInputs);
  const std::string_view infinite = node("IsInf", {from}, named("__infinite"));
  return node("Where", {infinite, from, clipped}, named("__bounded"));
}

}  // namespace mezzo::convert
