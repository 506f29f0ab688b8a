#include "convert/prepare/opset_edit.h"

#include <algorithm>
#include <bit>

#include "convert/onnx/concat.h"
#include "convert/onnx/element.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

constexpr int kCastsByNumber = 6;  // before, a Cast named its type in a text

Message integer_attribute(std::string_view name, std::int64_t value) {
  Message attribute;
  attribute.add(field::attribute::kName, name);
  attribute.add(field::attribute::kInt, static_cast<std::uint64_t>(value));
  attribute.add(field::attribute::kType, field::attribute_type::kInt);
  return attribute;
}

// The floats of `f` or of `floats`, as bytes.
std::string float_bytes(const Message& attribute) {
  std::vector<float> values = repeated_floats(attribute, field::attribute::kFloat);
  const std::vector<float> more = repeated_floats(attribute, field::attribute::kFloats);
  values.insert(values.end(), more.begin(), more.end());
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

std::string_view NodeEdit::op() const {
  return message_.text(field::node::kOpType);
}

std::string_view NodeEdit::input(std::size_t i) const {
  for (const Field& field : message_.fields()) {
    if (field.number == field::node::kInput && i-- == 0) return field.bytes;
  }
  return {};
}

std::size_t NodeEdit::output_count() const {
  std::size_t count = 0;
  for (const Field& field : message_.fields()) {
    count += field.number == field::node::kOutput && !field.bytes.empty() ? 1 : 0;
  }
  return count;
}

Message* NodeEdit::find(std::string_view attribute) const {
  for (Field& field : message_.fields()) {
    if (field.number != field::node::kAttribute) continue;
    if (field.open().text(field::attribute::kName) == attribute) return &field.open();
  }
  return nullptr;
}

bool NodeEdit::has_references() const {
  return std::ranges::any_of(message_.fields(), [](Field& field) {
    return field.number == field::node::kAttribute &&
           !field.open().text(field::attribute::kReference).empty();
  });
}

std::int64_t NodeEdit::integer(std::string_view attribute, std::int64_t otherwise) const {
  const Message* found = find(attribute);
  return found == nullptr ? otherwise
                          : static_cast<std::int64_t>(found->number(field::attribute::kInt));
}

std::string_view NodeEdit::text(std::string_view attribute) const {
  const Message* found = find(attribute);
  return found == nullptr ? std::string_view() : found->text(field::attribute::kString);
}

void NodeEdit::remove(std::string_view attribute) {
  std::vector<Field> kept;
  bool found = false;
  for (Field& field : message_.fields()) {
    const bool is_it = field.number == field::node::kAttribute &&
                       field.open().text(field::attribute::kName) == attribute;
    found = found || is_it;
    if (!is_it) kept.push_back(std::move(field));
  }
  if (found) {
    message_.replace(std::move(kept));
  } else {
    message_.fields() = std::move(kept);
  }
}

void NodeEdit::set_integer(std::string_view attribute, std::int64_t value) {
  remove(attribute);
  message_.add(field::node::kAttribute,
               std::make_unique<Message>(integer_attribute(attribute, value)));
}

void NodeEdit::set_float(std::string_view attribute, float value) {
  remove(attribute);
  auto made = std::make_unique<Message>();
  made->add(field::attribute::kName, attribute);
  made->add(field::attribute::kFloat, std::uint64_t{std::bit_cast<std::uint32_t>(value)}).wire =
      Wire::kFixed32;
  made->add(field::attribute::kType, field::attribute_type::kFloat);
  message_.add(field::node::kAttribute, std::move(made));
}

void NodeEdit::set_integers(std::string_view attribute, const std::vector<std::int64_t>& values) {
  remove(attribute);
  auto made = std::make_unique<Message>();
  made->add(field::attribute::kName, attribute);
  for (const std::int64_t value : values)
    made->add(field::attribute::kInts, static_cast<std::uint64_t>(value));
  made->add(field::attribute::kType, field::attribute_type::kInts);
  message_.add(field::node::kAttribute, std::move(made));
}

void NodeEdit::set_floats(std::string_view attribute, const std::vector<float>& values) {
  remove(attribute);
  auto made = std::make_unique<Message>();
  made->add(field::attribute::kName, attribute);
  made->add(field::attribute::kFloats,
            document_.keep(std::string(reinterpret_cast<const char*>(values.data()),
                                       values.size() * sizeof(float))));
  made->add(field::attribute::kType, field::attribute_type::kFloats);
  message_.add(field::node::kAttribute, std::move(made));
}

void NodeEdit::set_text(std::string_view attribute, std::string_view value) {
  remove(attribute);
  auto made = std::make_unique<Message>();
  made->add(field::attribute::kName, attribute);
  made->add(field::attribute::kString, value);
  made->add(field::attribute::kType, field::attribute_type::kString);
  message_.add(field::node::kAttribute, std::move(made));
}

void NodeEdit::set_op(std::string_view op) {
  message_.set(field::node::kOpType, op);
}

void NodeEdit::set_input(std::size_t i, std::string_view name) {
  std::size_t count = 0;
  for (Field& field : message_.fields()) {
    if (field.number != field::node::kInput) continue;
    if (count++ == i) return field.set_bytes(name);
  }
  for (; count < i; ++count) message_.add(field::node::kInput, std::string_view(""));
  message_.add(field::node::kInput, name);
}

std::string_view NodeEdit::fresh(std::string_view wanted) {
  return document_.keep(names_.take(std::string(wanted)));
}

Message NodeEdit::plain_node(std::string_view op, std::initializer_list<std::string_view> inputs,
                             std::string_view output) {
  Message node;
  for (const std::string_view in : inputs) node.add(field::node::kInput, in);
  node.add(field::node::kOutput, output);
  node.add(field::node::kName, fresh(concat({op, "_", output})));
  node.add(field::node::kOpType, op);
  return node;
}

std::string_view NodeEdit::constant(Message tensor) {
  const std::string_view output =
      fresh(concat({message_.text(field::node::kOutput), "__constant"}));
  Message node = plain_node("Constant", {}, output);
  auto attribute = std::make_unique<Message>();
  attribute->add(field::attribute::kName, std::string_view("value"));
  attribute->add(field::attribute::kTensor, std::make_unique<Message>(std::move(tensor)));
  attribute->add(field::attribute::kType, field::attribute_type::kTensor);
  node.add(field::node::kAttribute, std::move(attribute));
  before.push_back(std::move(node));
  return output;
}

void NodeEdit::attribute_to_input(std::string_view attribute, std::size_t i) {
  Message* found = find(attribute);
  if (found == nullptr) return;
  const bool is_single = found->find(field::attribute::kInt) != nullptr ||
                         found->find(field::attribute::kFloat) != nullptr;
  std::string bytes = float_bytes(*found);
  if (bytes.empty()) {
    std::vector<std::int64_t> values = repeated_integers(*found, field::attribute::kInts);
    if (is_single) values = {integer(attribute, 0)};
    remove(attribute);
    set_input(i, integers(values, is_single));
    return;
  }
  Message tensor;
  if (!is_single) tensor.add(field::tensor::kDims, std::uint64_t{bytes.size() / sizeof(float)});
  tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
  tensor.add(field::tensor::kRawData, document_.keep(std::move(bytes)));
  remove(attribute);
  set_input(i, constant(std::move(tensor)));
}

std::string_view NodeEdit::integers(const std::vector<std::int64_t>& values, bool is_single) {
  constexpr int kConstantsOfAnyType = 9;
  const auto made = [&](const auto& list, Element element) {
    Message tensor;
    if (!is_single) tensor.add(field::tensor::kDims, std::uint64_t{list.size()});
    tensor.add(field::tensor::kType, static_cast<std::uint64_t>(element));
    tensor.add(field::tensor::kRawData,
               document_.keep(std::string(reinterpret_cast<const char*>(list.data()),
                                          list.size() * sizeof(list[0]))));
    return constant(std::move(tensor));
  };
  if (target_ >= kConstantsOfAnyType) return made(values, Element::kInt64);
  // Constants were floating point numbers; sizes of tensors are exact as double.
  const std::string_view numbers =
      made(std::vector<double>(values.begin(), values.end()), Element::kDouble);
  const std::string_view output = computed("Cast", {numbers}, "__integers");
  NodeEdit cast(document_, names_, before.back(), target_);
  if (target_ < kCastsByNumber) {
    cast.set_text("to", "INT64");
  } else {
    cast.set_integer("to", static_cast<std::int64_t>(Element::kInt64));
  }
  return output;
}

void NodeEdit::attribute_to_list_input(std::string_view attribute, std::size_t i) {
  const std::int64_t value = integer(attribute, 0);
  remove(attribute);
  set_input(i, integers({value}));
}

std::string_view NodeEdit::computed(std::string_view op,
                                    std::initializer_list<std::string_view> inputs,
                                    std::string_view suffix) {
  const std::string_view output = fresh(concat({message_.text(field::node::kOutput), suffix}));
  before.push_back(plain_node(op, inputs, output));
  if (op == "Concat") {
    before.back().add(field::node::kAttribute,
                      std::make_unique<Message>(integer_attribute("axis", 0)));
  }
  return output;
}

// [G] becomes [G, 1], then [G, C / G], then [C].
void NodeEdit::repeat_per_channel(std::size_t i, std::int64_t groups) {
  const std::string_view one = integers({1});
  const std::string_view shape = computed("Shape", {input(0)}, "__shape");
  const std::string_view channels = computed("Gather", {shape, one}, "__channels");
  const std::string_view each = computed("Div", {channels, integers({groups})}, "__per_group");
  const std::string_view repeats = computed("Concat", {one, each}, "__repeats");
  const std::string_view column = computed("Unsqueeze", {input(i), one}, "__column");
  const std::string_view tiled = computed("Tile", {column, repeats}, "__tiled");
  set_input(i, computed("Reshape", {tiled, integers({-1})}, "__per_channel"));
}

std::string_view NodeEdit::empty_floats() {
  Message tensor;
  tensor.add(field::tensor::kDims, std::uint64_t{0});
  tensor.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
  return constant(std::move(tensor));
}

void NodeEdit::flatten_around(std::int64_t axis) {
  const std::string_view in = input(0);
  const std::string_view out = message_.text(field::node::kOutput);
  const std::string_view shape = fresh(concat({out, "__shape"}));
  const std::string_view matrix = fresh(concat({out, "__flat"}));
  const std::string_view result = fresh(concat({out, "__flat_result"}));
  before.push_back(plain_node("Shape", {in}, shape));
  Message flatten = plain_node("Flatten", {in}, matrix);
  flatten.add(field::node::kAttribute, std::make_unique<Message>(integer_attribute("axis", axis)));
  before.push_back(std::move(flatten));
  after.push_back(plain_node("Reshape", {result, shape}, out));
  set_input(0, matrix);
  message_.find(field::node::kOutput)->set_bytes(result);
  set_integer("axis", -1);
}

}  // namespace mezzo::convert
