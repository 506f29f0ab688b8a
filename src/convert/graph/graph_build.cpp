// Reads a model into a graph: scopes, names, uses, and an order of evaluation.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "convert/graph/graph.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/functions.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

std::string_view text_of(const Field& field) {
  return field.wire == Wire::kBytes ? field.bytes : std::string_view();
}

// Makes scopes from the outside in. A scope's own names are complete before its nodes are read, so
// that the order of nodes in the file does not matter.
class Builder {
 public:
  Builder(Graph& graph, const CustomOperators& custom)
      : graph_(graph), custom_(custom), functions_(graph.document().model()) {}

  void build() {
    Message& model = graph_.document().model();
    graph_.ir_version = static_cast<std::int64_t>(model.number(field::model::kIrVersion));
    Message& main = model.find(field::model::kGraph)->open();
    functions_.check_size(main);
    add_scope(main, ScopeKind::kMain, kNone, kNone, "",
              read_opsets(model, field::model::kOpsetImport));
  }

 private:
  using Opsets = std::map<std::string_view, std::int64_t>;

  static Opsets read_opsets(Message& message, std::uint32_t number) {
    Opsets opsets;
    for (Field& field : message.fields()) {
      if (field.number != number) continue;
      Message& entry = field.open();
      std::string_view domain = entry.text(field::opset::kDomain);
      if (domain == "ai.onnx") domain = "";
      opsets[domain] = static_cast<std::int64_t>(entry.number(field::opset::kVersion));
    }
    return opsets;
  }

  ValueId add_value(ScopeId scope, std::string_view name, Origin origin) {
    const auto id = static_cast<ValueId>(graph_.values.size());
    if (!graph_.scope(scope).names.emplace(name, id).second) {
      raise("onnx", "value '", name, "' is made twice", in(scope));
    }
    Value& value = graph_.values.emplace_back();
    value.name = name;
    value.scope = scope;
    value.origin = origin;
    return id;
  }

  std::string in(ScopeId scope) const {
    const std::string path = graph_.path_of(scope);
    return path.empty() ? std::string() : concat({" in ", path});
  }

  ScopeId add_scope(Message& message, ScopeKind kind, ScopeId parent, NodeId owner,
                    std::string_view attribute, Opsets opsets) {
    if (++depth_ > kDeepestNesting)
      raise("onnx", "graphs are nested deeper than ", kDeepestNesting);
    const auto id = static_cast<ScopeId>(graph_.scopes.size());
    Scope& scope = graph_.scopes.emplace_back();
    scope.kind = kind;
    scope.message = &message;
    scope.parent = parent;
    scope.owner = owner;
    scope.attribute = attribute;
    scope.opsets = std::move(opsets);
    if (kind == ScopeKind::kFunction) {
      add_function_inputs(id, message);
    } else {
      add_graph_inputs(id, message);
    }
    add_nodes(id, message,
              kind == ScopeKind::kFunction ? field::function::kNode : field::graph::kNode);
    connect(id);
    read_outputs(id, message);
    read_infos(id, message);
    order(id);
    --depth_;
    return id;
  }

  void add_function_inputs(ScopeId id, const Message& message) {
    for (const Field& field : message.fields()) {
      if (field.number != field::function::kInput) continue;
      const ValueId value = add_value(id, text_of(field), Origin::kInput);
      add_input(id, value);
    }
  }

  void add_input(ScopeId id, ValueId value) {
    Scope& scope = graph_.scope(id);
    graph_.value(value).is_scope_input = true;
    graph_.value(value).output = static_cast<int>(scope.inputs.size());
    scope.inputs.push_back(value);
  }

  void add_graph_inputs(ScopeId id, Message& message) {
    for (Field& field : message.fields()) {
      if (field.number != field::graph::kInput) continue;
      Message& info = field.open();
      const ValueId value = add_value(id, info.text(field::value_info::kName), Origin::kInput);
      read_info(value, info);
      add_input(id, value);
    }
    for (Field& field : message.fields()) {
      if (field.number == field::graph::kInitializer) add_initializer(id, field.open(), false);
      if (field.number == field::graph::kSparseInitializer) add_initializer(id, field.open(), true);
    }
  }

  void read_info(ValueId id, Message& info) {
    Field* type = info.find(field::value_info::kType);
    if (type == nullptr) return;
    graph_.value(id).type = graph_.value(id).declared = read_type(type->open());
    read_shape(id, info);
  }

  void read_shape(ValueId id, Message& info) {
    Field* type = info.find(field::value_info::kType);
    if (type == nullptr) return;
    Value& value = graph_.value(id);
    Field* tensor = type->open().find(field::type::kTensor);
    Field* shape = tensor == nullptr ? nullptr : tensor->open().find(field::tensor_type::kShape);
    if (shape == nullptr) return;
    value.has_dims = true;
    for (Field& dim : shape->open().fields()) {
      if (dim.number != field::shape::kDimension) continue;
      const Field* known = dim.open().find(field::shape::kDimensionValue);
      value.dims.push_back(known == nullptr ? -1 : static_cast<std::int64_t>(known->value));
    }
  }

  void add_initializer(ScopeId id, Message& tensor, bool is_sparse) {
    Message* named = &tensor;
    if (is_sparse) {
      Field* values = tensor.find(field::sparse_tensor::kValues);
      if (values == nullptr) raise("onnx", "a sparse initializer has no values");
      named = &values->open();
    }
    const std::string_view name = named->text(field::tensor::kName);
    const auto input = graph_.scope(id).names.find(name);
    const bool is_default = input != graph_.scope(id).names.end();
    if (is_default && !graph_.value(input->second).is_scope_input) {
      raise("onnx", "initializer '", name, "' is there twice", in(id));
    }
    const ValueId value_id =
        is_default
            ? input->second
            : add_value(id, name, is_sparse ? Origin::kSparseInitializer : Origin::kInitializer);
    Value& value = graph_.value(value_id);
    value.initializer = &tensor;
    if (!is_default) {
      value.type = tensor_of(static_cast<Element>(named->number(field::tensor::kType) & 0xFF));
      value.dims = repeated_integers(*named, field::tensor::kDims);
      value.has_dims = !is_sparse;
    }
  }

  void add_nodes(ScopeId id, Message& message, std::uint32_t number) {
    for (Field& field : message.fields()) {
      if (field.number == number) add_node(id, field.open());
    }
  }

  void add_node(ScopeId scope_id, Message& message) {
    namespace f = field::node;
    const auto id = static_cast<NodeId>(graph_.nodes.size());
    Node node;
    node.scope = scope_id;
    node.position = graph_.scope(scope_id).nodes.size();
    node.message = &message;
    node.op = message.text(f::kOpType);
    node.domain = message.text(f::kDomain);
    if (node.domain == "ai.onnx") node.domain = "";
    node.name = message.text(f::kName);
    node.opset = graph_.scope(scope_id).opset(node.domain);
    for (const Field& field : message.fields()) {
      if (field.number != f::kOutput) continue;
      const std::string_view name = text_of(field);
      ValueId value = kNone;
      if (!name.empty()) {
        value = add_value(scope_id, name, Origin::kNode);
        graph_.value(value).producer = id;
        graph_.value(value).output = static_cast<int>(node.outputs.size());
      }
      node.outputs.push_back(value);
    }
    if (functions_.called_by(message) == nullptr) node.schema = schema_of(node);
    graph_.nodes.push_back(std::move(node));
    graph_.scope(scope_id).nodes.push_back(id);
  }

  const Schema* schema_of(const Node& node) const {
    if (const Schema* known = find_schema(node.domain, node.op, node.opset)) return known;
    const CustomOperator* custom = custom_.find(node.qualified_name());
    return custom == nullptr ? nullptr : &custom->schema;
  }

  ValueId lookup(ScopeId scope, std::string_view name) const {
    for (; scope != kNone; scope = graph_.scope(scope).parent) {
      const auto& names = graph_.scope(scope).names;
      if (const auto found = names.find(name); found != names.end()) return found->second;
    }
    return kNone;
  }

  // Reads the inputs and the bodies of a scope's nodes, after all its names are known.
  void connect(ScopeId id) {
    const std::vector<NodeId> nodes = graph_.scope(id).nodes;
    for (const NodeId node_id : nodes) {
      Message& message = *graph_.node(node_id).message;
      int index = 0;
      for (const Field& field : message.fields()) {
        if (field.number != field::node::kInput) continue;
        connect_input(node_id, text_of(field), index++);
      }
      for (Field& field : message.fields()) {
        if (field.number == field::node::kAttribute) add_bodies(node_id, field.open());
      }
      add_instance(node_id);
    }
  }

  void connect_input(NodeId node_id, std::string_view name, int index) {
    Node& node = graph_.node(node_id);
    if (name.empty()) {
      node.inputs.push_back(kNone);
      return;
    }
    const ValueId value = lookup(node.scope, name);
    if (value == kNone) {
      raise("onnx", graph_.describe(node), " reads '", name, "', which nothing makes");
    }
    node.inputs.push_back(value);
    graph_.value(value).uses.push_back({node_id, index, kNone});
  }

  void add_bodies(NodeId node_id, Message& attribute) {
    namespace f = field::attribute;
    for (Field& field : attribute.fields()) {
      if (field.number != f::kGraph && field.number != f::kGraphs) continue;
      const ScopeId parent = graph_.node(node_id).scope;
      const std::string_view name = attribute.text(f::kName);
      const ScopeId body = add_scope(field.open(), ScopeKind::kBody, parent, node_id, name,
                                     graph_.scope(parent).opsets);
      graph_.node(node_id).bodies.push_back({name, body});
    }
  }

  void add_instance(NodeId node_id) {
    Message* function = functions_.called_by(*graph_.node(node_id).message);
    if (function == nullptr) return;
    Opsets opsets = read_opsets(*function, field::function::kOpsetImport);
    const ScopeId instance =
        add_scope(*function, ScopeKind::kFunction, kNone, node_id, "function", std::move(opsets));
    graph_.node(node_id).instance = instance;
  }

  void read_outputs(ScopeId id, Message& message) {
    const bool is_function = graph_.scope(id).kind == ScopeKind::kFunction;
    for (Field& field : message.fields()) {
      if (field.number != (is_function ? field::function::kOutput : field::graph::kOutput))
        continue;
      const std::string_view name =
          is_function ? text_of(field) : field.open().text(field::value_info::kName);
      const ValueId value = lookup(id, name);
      if (value == kNone) raise("onnx", "output '", name, "' is made by nothing", in(id));
      if (!is_function) declare(value, field.open());
      Scope& scope = graph_.scope(id);
      graph_.value(value).uses.push_back({kNone, static_cast<int>(scope.outputs.size()), id});
      scope.outputs.push_back(value);
    }
  }

  // Types and shapes that the file declares for values in between; types where operators give none.
  void read_infos(ScopeId id, Message& message) {
    const bool is_function = graph_.scope(id).kind == ScopeKind::kFunction;
    for (Field& field : message.fields()) {
      if (field.number != (is_function ? field::function::kValueInfo : field::graph::kValueInfo))
        continue;
      const auto& names = graph_.scope(id).names;
      const auto found = names.find(field.open().text(field::value_info::kName));
      if (found != names.end()) declare(found->second, field.open());
    }
  }

  void declare(ValueId id, Message& info) {
    Value& value = graph_.value(id);
    if (Field* type = info.find(field::value_info::kType)) value.declared = read_type(type->open());
    if (!value.has_dims) read_shape(id, info);
  }

  // Kahn's algorithm over the scope's own nodes; what a body captures counts as an input of its
  // owner.
  void order(ScopeId id) {
    Scope& scope = graph_.scope(id);
    std::unordered_map<NodeId, std::size_t> position;
    for (std::size_t i = 0; i < scope.nodes.size(); ++i) position.emplace(scope.nodes[i], i);
    std::vector<std::vector<std::size_t>> readers(scope.nodes.size());
    std::vector<std::size_t> missing(scope.nodes.size(), 0);
    for (const auto& [name, value_id] : scope.names) {
      const Value& value = graph_.value(value_id);
      if (value.producer == kNone) continue;
      for (const Use& use : value.uses) {
        const NodeId reader = owner_in(id, use);
        if (reader == kNone) continue;
        if (reader == value.producer)
          raise("onnx", graph_.describe(graph_.node(reader)), " reads what it makes");
        readers[position.at(value.producer)].push_back(position.at(reader));
        ++missing[position.at(reader)];
      }
    }
    std::vector<std::size_t> ready;
    for (std::size_t i = missing.size(); i-- > 0;) {
      if (missing[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const std::size_t next = ready.back();
      ready.pop_back();
      scope.ordered.push_back(scope.nodes[next]);
      for (const std::size_t reader : readers[next]) {
        if (--missing[reader] == 0) ready.push_back(reader);
      }
    }
    if (scope.ordered.size() != scope.nodes.size()) raise("onnx", "the graph has a cycle", in(id));
  }

  // The node of scope `id` by which a use happens: itself, or the holder of the body it stands in.
  NodeId owner_in(ScopeId id, const Use& use) const {
    ScopeId at = use.node == kNone ? use.scope : graph_.node(use.node).scope;
    NodeId node = use.node;
    while (at != id) {
      if (at == kNone) return kNone;
      node = graph_.scope(at).owner;
      at = graph_.scope(at).parent;
    }
    return node;
  }

  Graph& graph_;
  const CustomOperators& custom_;
  Functions functions_;
  int depth_ = 0;
};

}  // namespace

void build_graph(Graph& graph, const CustomOperators& custom) {
  Builder(graph, custom).build();
}

}  // namespace mezzo::convert
