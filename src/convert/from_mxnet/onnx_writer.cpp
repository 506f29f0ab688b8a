#include "convert/from_mxnet/onnx_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

#include "convert/onnx/array.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/store.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr std::uint64_t kIrVersion = 8;

template <typename T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Array array_of(const NDArrays& arrays, const std::string& name) {
  Array array;
  array.element = parse_element(arrays.dtype(name)).value_or(Element::kUndefined);
  array.dims = arrays.shape(name);
  array.bytes = arrays.bytes(name);
  return array;
}

// Sizes that no graph of MXNet has are taken as unknown: arithmetic with the others cannot
// overflow.
std::optional<Dims> possible(std::optional<Dims> dims) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (dims)
    for (std::int64_t& dim : *dims) dim = dim < 0 || dim > kMost ? kUnknownSize : dim;
  return dims;
}

bool is_low(Element element) {
  return element == Element::kFloat16 || element == Element::kBFloat16;
}

std::unique_ptr<Message> attribute_message(const Attribute& attribute, Document& document) {
  auto message = std::make_unique<Message>();
  message->add(field::attribute::kName, document.keep(attribute.name));
  if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) {
    message->add(field::attribute::kInt, static_cast<std::uint64_t>(*whole));
    message->add(field::attribute::kType, field::attribute_type::kInt);
  } else if (const auto* number = std::get_if<float>(&attribute.value)) {
    message->add(field::attribute::kFloat, std::uint64_t{std::bit_cast<std::uint32_t>(*number)})
        .wire = Wire::kFixed32;
    message->add(field::attribute::kType, field::attribute_type::kFloat);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    message->add(field::attribute::kString, document.keep(*text));
    message->add(field::attribute::kType, field::attribute_type::kString);
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&attribute.value)) {
    for (const std::string& each : *texts)
      message->add(field::attribute::kStrings, document.keep(each));
    message->add(field::attribute::kType, field::attribute_type::kStrings);
  } else {
    for (const std::int64_t value : std::get<Dims>(attribute.value))
      message->add(field::attribute::kInts, static_cast<std::uint64_t>(value));
    message->add(field::attribute::kType, field::attribute_type::kInts);
  }
  return message;
}

}  // namespace

std::string OnnxWriter::take(const std::string& wanted) {
  if (taken_.insert(wanted).second) return wanted;
  for (int& number = last_[wanted];;) {
    std::string name = wanted + "_" + std::to_string(++number);
    if (taken_.insert(name).second) return name;
  }
}

Operand OnnxWriter::input(const std::string& name, const Form& form,
                          const std::vector<std::string>& names) {
  inputs_.push_back({take(name), form, names});
  return {inputs_.back().name, form.element, form.dims};
}

Operand OnnxWriter::constant(Constant made) {
  made.name = take(made.name);
  constants_.push_back(std::move(made));
  const Constant& kept = constants_.back();
  return {kept.name, kept.element, kept.dims};
}

Operand OnnxWriter::parameter(const NDArrays& arrays, const std::string& name) {
  const Element element = parse_element(arrays.dtype(name)).value_or(Element::kUndefined);
  if (!is_low(element))
    return constant({name, element, arrays.shape(name), {}, arrays.bytes(name)});
  Array wide = converted(array_of(arrays, name), Element::kFloat);
  return constant({name, Element::kFloat, wide.dims, std::move(wide.bytes), {}});
}

Operand OnnxWriter::transposed(const NDArrays& arrays, const std::string& name) {
  Array array = array_of(arrays, name);
  if (is_low(array.element)) array = converted(array, Element::kFloat);
  const std::size_t size = size_of(array.element);
  const auto rows = static_cast<std::size_t>(array.dims.at(0));
  const auto columns = static_cast<std::size_t>(array.dims.at(1));
  std::string turned(array.bytes.size(), '\0');
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(turned.data() + (column * rows + row) * size,
                  array.bytes.data() + (row * columns + column) * size, size);
    }
  }
  const std::string key = "transposed:" + name;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  return known_[key] = constant({name + "_transposed",
                                 array.element,
                                 {array.dims[1], array.dims[0]},
                                 std::move(turned),
                                 {}});
}

Operand OnnxWriter::tensor(Element element, Dims dims, std::string bytes) {
  std::string key = std::to_string(static_cast<int>(element)) + ":";
  for (const std::int64_t dim : dims) key += std::to_string(dim) + ",";
  key += ":" + bytes;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  return known_[key] = constant({"constant", element, std::move(dims), std::move(bytes), {}});
}

Operand OnnxWriter::integers(const std::vector<std::int64_t>& values) {
  return tensor(Element::kInt64, {static_cast<std::int64_t>(values.size())},
                bytes_of_values(values));
}

Operand OnnxWriter::integer(std::int64_t value) {
  return tensor(Element::kInt64, {}, bytes_of_values(std::vector<std::int64_t>{value}));
}

Operand OnnxWriter::floats(Dims dims, const std::vector<float>& values) {
  return tensor(Element::kFloat, std::move(dims), bytes_of_values(values));
}

Operand OnnxWriter::number(double value, Element element) {
  const auto of = [&]<typename T>(T typed) {
    return tensor(element, {}, bytes_of_values(std::vector<T>{typed}));
  };
  const auto whole = [&]<typename T>(T) {  // the nearest that the type has
    constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
    if (!(value > kLeast)) return of(std::numeric_limits<T>::min());
    return of(value >= kMost ? std::numeric_limits<T>::max() : static_cast<T>(value));
  };
  switch (element) {
    case Element::kDouble:
      return of(value);
    case Element::kInt64:
      return whole(std::int64_t{});
    case Element::kInt32:
      return whole(std::int32_t{});
    case Element::kInt8:
      return whole(std::int8_t{});
    case Element::kUint8:
      return whole(std::uint8_t{});
    case Element::kFloat:
      return of(static_cast<float>(value));
    default:
      raise<UnsupportedError>("mxnet", "a number beside values of ", name_of(element),
                              "; expected float32, float64, int8, uint8, int32 or int64");
  }
}

void OnnxWriter::begin(const std::string& node) {
  prefix_ = node;
  begun_ = nodes_.size();
}

void OnnxWriter::keep_in_float() {
  for (std::size_t i = begun_; i < nodes_.size(); ++i) in_float_.insert(nodes_[i].name);
}

std::vector<std::string> OnnxWriter::nodes_in_float() const {
  std::vector<std::string> names;
  for (const Made& node : nodes_) {
    if (in_float_.contains(node.name)) names.push_back(node.name);
  }
  return names;
}

Operands OnnxWriter::add(const std::string& op, const Operands& inputs,
                         const Attributes& attributes, const std::vector<Form>& forms) {
  Made node{op, take(prefix_), {}, {}, attributes};
  for (const Operand& input : inputs) node.inputs.push_back(input.name);
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  Operands results;
  for (const Form& form : forms) {
    node.outputs.push_back(take(prefix_ + "_" + op));
    results.push_back({node.outputs.back(), form.element, possible(form.dims)});
  }
  nodes_.push_back(std::move(node));
  return results;
}

Operand OnnxWriter::add(const std::string& op, const Operands& inputs, const Attributes& attributes,
                        const Form& form) {
  return add(op, inputs, attributes, std::vector<Form>{form}).front();
}

void OnnxWriter::rename(Operand& operand, const std::string& wanted) {
  const auto is_it = [&](const std::string& name) { return name == operand.name; };
  bool is_new = false;
  for (std::size_t i = begun_; i < nodes_.size(); ++i)
    is_new = is_new || std::ranges::any_of(nodes_[i].outputs, is_it);
  if (!is_new || !taken_.insert(wanted).second) return;
  for (std::size_t i = begun_; i < nodes_.size(); ++i) {
    std::ranges::replace_if(nodes_[i].inputs, is_it, wanted);
    std::ranges::replace_if(nodes_[i].outputs, is_it, wanted);
  }
  operand.name = wanted;
}

void OnnxWriter::result(const Operand& operand, const std::string& name) {
  const auto is_made_here = [&](const Made& node) {
    return std::ranges::find(node.outputs, operand.name) != node.outputs.end();
  };
  const auto is_out = [&](const Declared& out) { return out.name == operand.name; };
  Operand last = operand;
  if (operand.name != name || std::ranges::none_of(nodes_, is_made_here) ||
      std::ranges::any_of(outputs_, is_out)) {
    begin(name);
    last = add("Identity", {operand}, {}, form_of(operand));
    rename(last, taken_.contains(name) ? name + "_result" : name);
  }
  outputs_.push_back({last.name, form_of(last), {}});
}

std::unique_ptr<Message> OnnxWriter::message_of(const Made& node, Document& document) const {
  auto message = std::make_unique<Message>();
  for (const std::string& input : node.inputs)
    message->add(field::node::kInput, document.keep(input));
  for (const std::string& output : node.outputs)
    message->add(field::node::kOutput, document.keep(output));
  message->add(field::node::kName, document.keep(node.name));
  message->add(field::node::kOpType, document.keep(node.op));
  for (const Attribute& attribute : node.attributes)
    message->add(field::node::kAttribute, attribute_message(attribute, document));
  return message;
}

std::unique_ptr<Message> OnnxWriter::message_of(const Declared& value, Document& document) const {
  auto tensor = std::make_unique<Message>();
  tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(value.form.element));
  if (value.form.dims) {
    auto shape = std::make_unique<Message>();
    for (std::size_t i = 0; i < value.form.dims->size(); ++i) {
      auto dim = std::make_unique<Message>();
      const std::int64_t size = (*value.form.dims)[i];
      if (size >= 0)
        dim->add(field::shape::kDimensionValue, static_cast<std::uint64_t>(size));
      else if (i < value.names.size())
        dim->add(field::shape::kDimensionName, document.keep(value.names[i]));
      shape->add(field::shape::kDimension, std::move(dim));
    }
    tensor->add(field::tensor_type::kShape, std::move(shape));
  }
  auto type = std::make_unique<Message>();
  type->add(field::type::kTensor, std::move(tensor));
  auto info = std::make_unique<Message>();
  info->add(field::value_info::kName, document.keep(value.name));
  info->add(field::value_info::kType, std::move(type));
  return info;
}

std::unique_ptr<Message> OnnxWriter::message_of(const Constant& constant) const {
  auto message = std::make_unique<Message>();
  for (const std::int64_t dim : constant.dims)
    message->add(field::tensor::kDims, static_cast<std::uint64_t>(dim));
  message->add(field::tensor::kType, static_cast<std::uint64_t>(constant.element));
  message->add(field::tensor::kName, std::string_view(constant.name));
  message->add(field::tensor::kRawData, constant.bytes());
  return message;
}

void OnnxWriter::prune() {
  std::set<std::string, std::less<>> needed;
  for (const Declared& out : outputs_) needed.insert(out.name);
  std::vector<Made> kept;
  for (; !nodes_.empty(); nodes_.pop_back()) {
    Made& node = nodes_.back();
    const auto is_needed = [&](const std::string& name) { return needed.contains(name); };
    if (std::ranges::none_of(node.outputs, is_needed)) continue;
    kept.push_back(std::move(node));
    for (const std::string& input : kept.back().inputs) needed.insert(input);
  }
  nodes_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(constants_,
                [&](const Constant& constant) { return !needed.contains(constant.name); });
}

std::int64_t OnnxWriter::store(const std::filesystem::path& out) {
  prune();
  // The least that is a model: an empty graph, which is then filled.
  Message least;
  least.add(field::model::kIrVersion, kIrVersion);
  least.add(field::model::kGraph, std::string_view());
  StringSink sink;
  least.write(sink);
  Document document(std::move(sink.text));
  Message& model = document.model();
  model.set(field::model::kIrVersion, kIrVersion);
  Message& graph = model.find(field::model::kGraph)->open();
  for (const Made& node : nodes_) graph.add(field::graph::kNode, message_of(node, document));
  graph.add(field::graph::kName, std::string_view("mxnet"));
  for (const Constant& constant : constants_)
    graph.add(field::graph::kInitializer, message_of(constant));
  for (const Declared& value : inputs_)
    graph.add(field::graph::kInput, message_of(value, document));
  for (const Declared& value : outputs_)
    graph.add(field::graph::kOutput, message_of(value, document));
  auto opset = std::make_unique<Message>();
  opset->add(field::opset::kVersion, static_cast<std::uint64_t>(kOpset));
  model.add(field::model::kOpsetImport, std::move(opset));
  return store_model(document, out).bytes;
}

}  // namespace mezzo::convert::mxnet
