// The batched Scan of opset 8 as one Scan in another.
#include <utility>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/prepare/opset_edit.h"

namespace mezzo::convert {
namespace {

// A value of the same element type, whatever its shape is.
std::unique_ptr<Message> renamed(const Message& info, std::string_view name) {
  auto made = std::make_unique<Message>(info.clone());
  made->set(field::value_info::kName, name);
  Field* type = made->find(field::value_info::kType);
  Field* tensor = type == nullptr ? nullptr : type->open().find(field::type::kTensor);
  if (tensor != nullptr) tensor->open().remove(field::tensor_type::kShape);
  return made;
}

}  // namespace

bool NodeEdit::scan_batch() {
  Message* attribute = find("body");
  Field* body = attribute == nullptr ? nullptr : attribute->find(field::attribute::kGraph);
  if (body == nullptr) return false;
  const std::string_view out = message_.text(field::node::kOutput);
  Message single;  // what the node was, for one sequence
  auto graph = std::make_unique<Message>();
  std::int64_t scanned = 0;
  for (Field& field : body->open().fields()) {
    const bool is_input = field.number == field::graph::kInput;
    if (!is_input && field.number != field::graph::kOutput) continue;
    const Message& info = field.open();
    const std::string_view name =
        fresh(concat({info.text(field::value_info::kName), "__of_sequence"}));
    single.add(is_input ? field::node::kInput : field::node::kOutput, name);
    graph->add(field.number, renamed(info, name));
    scanned += is_input ? 1 : 0;
  }
  single.add(field::node::kName, fresh(concat({"Scan_", out})));
  single.add(field::node::kOpType, std::string_view("Scan"));
  std::vector<Field> rest;
  bool has_lengths = true;  // their place is the first input, though it is empty
  for (Field& field : message_.fields()) {
    if (field.number == field::node::kAttribute) {
      Message& moved = field.open();
      if (moved.text(field::attribute::kName) == "directions")
        moved.set(field::attribute::kName, std::string_view("scan_input_directions"));
      single.fields().push_back(std::move(field));
    } else if (field.number != field::node::kInput || !std::exchange(has_lengths, false)) {
      rest.push_back(std::move(field));
    }
  }
  message_.replace(std::move(rest));
  graph->add(field::graph::kNode, std::make_unique<Message>(std::move(single)));
  graph->add(field::graph::kName, fresh(concat({out, "__batch"})));
  auto made = std::make_unique<Message>();
  made->add(field::attribute::kName, std::string_view("body"));
  made->add(field::attribute::kGraph, std::move(graph));
  made->add(field::attribute::kType, field::attribute_type::kGraph);
  message_.add(field::node::kAttribute, std::move(made));
  set_integer("num_scan_inputs", scanned);
  return true;
}

}  // namespace mezzo::convert
