// A model as a graph: scopes, values with their producers and uses, nodes with their schemas and
// bodies.
//
// Index-based and immutable after it was made. A model-local function appears once per call, as a
// scope of its own (an instance), so that every call has types of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/onnx/document.h"
#include "convert/onnx/tensor.h"
#include "convert/standard/custom_operators.h"
#include "convert/standard/schema.h"

namespace mezzo::convert {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
using ScopeId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

enum class Origin : std::uint8_t { kNode, kInput, kInitializer, kSparseInitializer };

/// A reader of a value: input `input` of `node`, or, with node kNone, output `input` of `scope`.
struct Use {
  NodeId node = kNone;
  int input = 0;
  ScopeId scope = kNone;
};

struct Value {
  std::string_view name;
  ScopeId scope = kNone;
  Origin origin = Origin::kNode;
  NodeId producer = kNone;
  int output = 0;  // which output of the producer, or which input of the scope
  bool is_scope_input = false;
  const Message* initializer =
      nullptr;  // TensorProto, or SparseTensorProto; also of inputs with defaults
  Type type;
  Type declared;                   // by the file; counts only where `type` follows from no operator
  std::vector<std::int64_t> dims;  // where the file gives them; -1: unknown
  bool has_dims = false;
  std::vector<Use> uses;
};

struct Body {
  std::string_view attribute;
  ScopeId scope = kNone;
};

struct Node {
  ScopeId scope = kNone;
  std::size_t position = 0;  // among the scope's nodes, in file order
  Message* message = nullptr;
  std::string_view op, domain, name;
  std::int64_t opset = 0;
  const Schema* schema = nullptr;
  std::vector<ValueId> inputs, outputs;  // kNone: left out
  std::vector<Body> bodies;              // graphs in attributes
  ScopeId instance = kNone;              // the function's body, where this is a call of one

  ScopeId body(std::string_view attribute) const;
  /// "Conv", "com.microsoft::Gelu".
  std::string qualified_name() const { return convert::qualified_name(domain, op); }
  /// Is it an operator of the standard's own domain, or one that a file describes?
  bool is_described() const { return schema != nullptr && (domain.empty() || schema->is_custom); }
};

enum class ScopeKind : std::uint8_t { kMain, kBody, kFunction };

struct Scope {
  ScopeKind kind = ScopeKind::kMain;
  Message* message = nullptr;  // GraphProto or FunctionProto
  ScopeId parent = kNone;      // whose names are seen inside; none for a function
  NodeId owner = kNone;        // the node that holds the body or calls the function
  std::string_view attribute;  // of the owner, that has the body; "function" for a function
  std::vector<ValueId> inputs, outputs;
  std::vector<NodeId> nodes;    // in file order
  std::vector<NodeId> ordered;  // in an order in which every value is made before it is read
  std::unordered_map<std::string_view, ValueId> names;
  std::map<std::string_view, std::int64_t> opsets;

  std::int64_t opset(std::string_view domain) const;
};

/// "[1, 3, ?]".
std::string shape_text(const std::vector<std::int64_t>& dims);

class Graph {
 public:
  /// Reads the whole model and infers the type of every value. Throws Error if names or scopes
  /// are wrong. The document and the custom operators must outlive the graph.
  explicit Graph(Document&, const CustomOperators& = CustomOperators::built_in());

  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Scope> scopes;  // 0: the main graph
  std::int64_t ir_version = 0;

  Document& document() const { return document_; }
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  const Scope& scope(ScopeId id) const { return scopes[static_cast<std::size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }
  Scope& scope(ScopeId id) { return scopes[static_cast<std::size_t>(id)]; }

  /// The attribute of that name as the node has it, references to a function's attributes resolved;
  /// null if it is left out.
  Message* attribute(const Node&, std::string_view name) const;
  std::int64_t integer(const Node&, std::string_view name, std::int64_t otherwise) const;
  /// Does the node take this attribute from the function that it stands in?
  static bool is_reference(const Node&, std::string_view name);
  /// The attribute as text: what the node says or else the schema's default. Lists as "[1, 2]".
  std::string attribute_text(const Node&, std::string_view name) const;

  /// The tensor of a constant: an initializer that no caller can replace, or the `value` of a
  /// Constant node. Null for anything else.
  const Message* constant(ValueId) const;

  /// Where a scope is, for readers: "", "node 'x' (If)/then_branch", ...
  std::string path_of(ScopeId) const;
  /// A name for a scope alone, from the outputs of its owners: "", "y/then_branch/", ...
  std::string key_of(ScopeId) const;
  /// As above, for a node, from its first output: "y", "y/then_branch/t".
  std::string key_of(const Node&) const;

  /// "node 'conv1' (Conv)" or "node 7 (Conv)" with the scope it stands in.
  std::string describe(const Node&) const;
  std::string describe(const Value&) const;

 private:
  Document& document_;
};

/// The largest magnitude that a value had on the calibration samples.
using ValueRanges = std::unordered_map<ValueId, double>;

/// Reads scopes, values, nodes and functions. Called by Graph.
void build_graph(Graph&, const CustomOperators&);

/// Infers the types of all values, scope by scope. Called by Graph.
void infer_types(Graph&);

}  // namespace mezzo::convert
