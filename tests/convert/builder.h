// Builds ONNX models for tests.
#pragma once

#include <bit>
#include <deque>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/onnx/element.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/wire.h"

namespace mezzo::convert {

inline std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

inline Message value_info(const std::string& name, Element element,
                          const std::vector<std::int64_t>& dims) {
  auto shape = std::make_unique<Message>();
  for (const std::int64_t dim : dims) {
    auto entry = std::make_unique<Message>();
    if (dim >= 0) entry->add(field::shape::kDimensionValue, static_cast<std::uint64_t>(dim));
    shape->add(field::shape::kDimension, std::move(entry));
  }
  auto tensor = std::make_unique<Message>();
  tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(element));
  tensor->add(field::tensor_type::kShape, std::move(shape));
  auto type = std::make_unique<Message>();
  type->add(field::type::kTensor, std::move(tensor));
  Message info;
  info.add(field::value_info::kName, kept(name));
  info.add(field::value_info::kType, std::move(type));
  return info;
}

template <typename T>
Message tensor(const std::string& name, Element element, const std::vector<std::int64_t>& dims,
               const std::vector<T>& values) {
  Message message;
  for (const std::int64_t dim : dims)
    message.add(field::tensor::kDims, static_cast<std::uint64_t>(dim));
  message.add(field::tensor::kType, static_cast<std::uint64_t>(element));
  if (!name.empty()) message.add(field::tensor::kName, kept(name));
  message.add(
      field::tensor::kRawData,
      kept(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))));
  return message;
}

inline Message floats(const std::string& name, const std::vector<std::int64_t>& dims,
                      const std::vector<float>& values) {
  return tensor(name, Element::kFloat, dims, values);
}

inline Message attribute(const std::string& name, std::int64_t value) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  message.add(field::attribute::kInt, static_cast<std::uint64_t>(value));
  message.add(field::attribute::kType, std::uint64_t{2});
  return message;
}

inline Message attribute(const std::string& name, const char* value) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  message.add(field::attribute::kString, kept(value));
  message.add(field::attribute::kType, std::uint64_t{3});
  return message;
}

inline Message float_attribute(const std::string& name, float value) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  message.add(field::attribute::kFloat, std::uint64_t{std::bit_cast<std::uint32_t>(value)}).wire =
      Wire::kFixed32;
  message.add(field::attribute::kType, std::uint64_t{1});
  return message;
}

inline Message integers_attribute(const std::string& name,
                                  const std::vector<std::int64_t>& values) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  for (const std::int64_t value : values)
    message.add(field::attribute::kInts, static_cast<std::uint64_t>(value));
  message.add(field::attribute::kType, std::uint64_t{7});
  return message;
}

inline Message attribute(const std::string& name, std::uint32_t field, std::uint64_t type,
                         Message value) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  message.add(field, std::make_unique<Message>(std::move(value)));
  message.add(field::attribute::kType, type);
  return message;
}

inline Message body_attribute(const std::string& name, Message graph) {
  return attribute(name, field::attribute::kGraph, 5, std::move(graph));
}

inline Message tensor_attribute(const std::string& name, Message value) {
  return attribute(name, field::attribute::kTensor, 4, std::move(value));
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name = "graph") {
    graph_.add(field::graph::kName, kept(name));
  }

  GraphBuilder& input(const std::string& name, Element element = Element::kFloat,
                      std::vector<std::int64_t> dims = {2, 2}) {
    return add(field::graph::kInput, value_info(name, element, dims));
  }
  GraphBuilder& output(const std::string& name, Element element = Element::kFloat,
                       std::vector<std::int64_t> dims = {2, 2}) {
    return add(field::graph::kOutput, value_info(name, element, dims));
  }
  GraphBuilder& weight(const std::string& name, std::vector<float> values = {1, 2, 3, 4},
                       std::vector<std::int64_t> dims = {2, 2}) {
    return add(field::graph::kInitializer, floats(name, dims, values));
  }
  GraphBuilder& initializer(Message tensor) {
    return add(field::graph::kInitializer, std::move(tensor));
  }

  template <typename... Attributes>
  GraphBuilder& node(const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, Attributes... attributes) {
    Message message;
    for (const std::string& in : inputs) message.add(field::node::kInput, kept(in));
    for (const std::string& out : outputs) message.add(field::node::kOutput, kept(out));
    if (!next_name_.empty()) message.add(field::node::kName, kept(std::exchange(next_name_, {})));
    message.add(field::node::kOpType, kept(op));
    (message.add(field::node::kAttribute, std::make_unique<Message>(std::move(attributes))), ...);
    if (!domain_.empty()) message.add(field::node::kDomain, kept(std::exchange(domain_, {})));
    return add(field::graph::kNode, std::move(message));
  }
  GraphBuilder& named(const std::string& name) {
    next_name_ = name;
    return *this;
  }
  GraphBuilder& in_domain(const std::string& domain) {
    domain_ = domain;
    return *this;
  }

  Message take() { return std::move(graph_); }
  GraphBuilder& add(std::uint32_t number, Message message) {
    graph_.add(number, std::make_unique<Message>(std::move(message)));
    return *this;
  }

 private:
  Message graph_;
  std::string next_name_, domain_;
};

inline Message opset_import(int version, const std::string& domain = "") {
  Message import;
  if (!domain.empty()) import.add(field::opset::kDomain, kept(domain));
  import.add(field::opset::kVersion, static_cast<std::uint64_t>(version));
  return import;
}

inline Message model(Message graph, int opset = 17, int ir = 8) {
  Message message;
  message.add(field::model::kIrVersion, static_cast<std::uint64_t>(ir));
  message.add(field::model::kGraph, std::make_unique<Message>(std::move(graph)));
  message.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(opset)));
  return message;
}

inline std::string bytes_of(const Message& message) {
  StringSink sink;
  message.write(sink);
  return sink.text;
}

inline void save(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void save(const std::filesystem::path& path, const Message& message) {
  save(path, bytes_of(message));
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The type of each weight of the main graph, by name.
inline std::map<std::string, std::string> weight_types(const std::filesystem::path& path) {
  std::map<std::string, std::string> types;
  const std::string bytes = contents(path);
  Message m = Message::parse(bytes);
  for (Field& field : m.find(field::model::kGraph)->open().fields()) {
    if (field.number != field::graph::kInitializer) continue;
    const Message& tensor = field.open();
    types[std::string(tensor.text(field::tensor::kName))] =
        name_of(static_cast<Element>(tensor.number(field::tensor::kType)));
  }
  return types;
}

}  // namespace mezzo::convert
