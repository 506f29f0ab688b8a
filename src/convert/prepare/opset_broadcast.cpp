// Facts and edits that adapters of old opsets need beyond the node itself: shapes, operands that
// were aligned, outputs that changed their type.
#include "convert/onnx/fields.h"
#include "convert/prepare/opset_edit.h"

namespace mezzo::convert {
namespace {

void keep_fields(Message& node, std::uint32_t number, std::size_t count) {
  std::vector<Field> kept;
  std::size_t seen = 0;
  for (Field& field : node.fields()) {
    if (field.number != number || seen++ < count) kept.push_back(std::move(field));
  }
  node.replace(std::move(kept));
}

}  // namespace

std::optional<Dims> NodeEdit::shape(std::size_t input) const {
  return facts_ == nullptr ? std::nullopt : facts_->shape(message_, input);
}

std::optional<std::vector<double>> NodeEdit::constant_numbers(std::size_t input) const {
  return facts_ == nullptr ? std::nullopt : facts_->numbers(message_, input);
}

std::optional<Element> NodeEdit::element(std::size_t output) const {
  return facts_ == nullptr ? std::nullopt : facts_->element(message_, output);
}

bool NodeEdit::is_read(std::size_t output) const {
  return facts_ == nullptr || facts_->is_read(message_, output);
}

void NodeEdit::keep_inputs(std::size_t count) {
  keep_fields(message_, field::node::kInput, count);
}

void NodeEdit::keep_outputs(std::size_t count) {
  keep_fields(message_, field::node::kOutput, count);
}

void NodeEdit::cast_input(std::size_t i) {
  set_input(i, computed("Cast", {input(i)}, "__integer"));
  NodeEdit(document_, names_, before.back(), target_)
      .set_integer("to", static_cast<std::int64_t>(Element::kInt64));
}

void NodeEdit::cast_output(std::size_t i, Element to) {
  for (Field& field : message_.fields()) {
    if (field.number != field::node::kOutput || i-- != 0) continue;
    const std::string_view known = field.bytes;
    const std::string_view made = fresh(std::string(known) + "__uncast");
    field.set_bytes(made);
    after.push_back(plain_node("Cast", {made}, known));
    NodeEdit(document_, names_, after.back(), target_)
        .set_integer("to", static_cast<std::int64_t>(to));
    return;
  }
}

// In the shape that Reshape takes, 0 stands for the dimension that is there.
void NodeEdit::append_ones(std::size_t i, std::size_t rank, std::size_t ones) {
  std::vector<std::int64_t> shape(rank, 0);
  shape.resize(rank + ones, 1);
  set_input(i, computed("Reshape", {input(i), integers(shape)}, "__aligned"));
}

void NodeEdit::place_in_ones(std::size_t i, std::size_t rank, std::size_t at) {
  cast_input(i);
  std::string_view list = computed("Reshape", {input(i), integers({1})}, "__single");
  if (at != 0) {
    const std::string_view first = integers(std::vector<std::int64_t>(at, 1));
    list = computed("Concat", {first, list}, "__from_first");
  }
  if (at + 1 < rank) {
    const std::string_view last = integers(std::vector<std::int64_t>(rank - at - 1, 1));
    list = computed("Concat", {list, last}, "__to_last");
  }
  set_input(i, list);
}

std::string_view NodeEdit::truth() {
  Message tensor;
  tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kBool));
  tensor.add(field::tensor::kRawData, std::string_view("\1", 1));
  return constant(std::move(tensor));
}

}  // namespace mezzo::convert
