#include "convert/graph/names.h"

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/functions.h"
#include "core/raise.h"

namespace mezzo::convert {

Names::Names(const Graph& graph, ScopeId root) {
  add(graph, root);
}

Names::Names(Message& function) {
  for (const Field& field : function.fields()) {
    if (field.number == field::function::kInput) taken_.emplace(field.bytes);
  }
  add_nodes(function, field::function::kNode, 1);
}

void Names::add_nodes(Message& message, std::uint32_t number, int depth) {
  if (depth > kDeepestNesting) raise("onnx", "graphs are nested deeper than ", kDeepestNesting);
  for (Field& field : message.fields()) {
    if (number == field::graph::kNode &&
        (field.number == field::graph::kInput || field.number == field::graph::kInitializer)) {
      const bool is_input = field.number == field::graph::kInput;
      taken_.emplace(field.open().text(is_input ? field::value_info::kName : field::tensor::kName));
    }
    if (field.number != number) continue;
    Message& node = field.open();
    taken_.emplace(node.text(field::node::kName));
    for (Field& part : node.fields()) {
      if (part.number == field::node::kOutput) taken_.emplace(part.bytes);
      if (part.number != field::node::kAttribute) continue;
      for (Field& body : part.open().fields()) {
        if (body.number == field::attribute::kGraph || body.number == field::attribute::kGraphs)
          add_nodes(body.open(), field::graph::kNode, depth + 1);
      }
    }
  }
}

void Names::add(const Graph& graph, ScopeId id) {
  const Scope& scope = graph.scope(id);
  for (const auto& [name, value] : scope.names) taken_.emplace(name);
  for (const NodeId node : scope.nodes) {
    taken_.emplace(graph.node(node).name);
    for (const Body& body : graph.node(node).bodies) add(graph, body.scope);
  }
}

std::string Names::take(const std::string& wanted) {
  if (taken_.insert(wanted).second) return wanted;
  // Numbers that were taken stay so: very many may want the same name.
  int& last = last_[wanted];
  for (;;) {
    std::string name = concat({wanted, "_", std::to_string(++last)});
    if (taken_.insert(name).second) return name;
  }
}

}  // namespace mezzo::convert
