// Changes to a model that are gathered while its graph is read, and made at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/graph/graph.h"
#include "convert/graph/names.h"

namespace mezzo::convert {

/// A node that makes a constant.
Message constant_node(std::string_view output, std::string_view name, Message tensor);

/// Removes nodes and constants, replaces and adds constants. The graph describes the document until
/// make() is called, and nothing afterwards.
class GraphEdits {
 public:
  explicit GraphEdits(const Graph& graph) : graph_(graph) {}

  void remove_node(const Node&);
  /// The value is no more: what the file declares of it goes.
  void forget(const Value&);
  /// One reader of the value reads it no more. A constant that nobody reads goes with the last.
  void release(ValueId);
  /// Other values in the place of a float32 constant's, as many.
  void replace_values(ValueId constant, const std::vector<float>& values);
  /// A new float32 constant in that scope: an initializer, or a node if there are none. The name
  /// is the one wanted, or that with a number. Returns it.
  std::string_view add_constant(ScopeId, const std::string& wanted,
                                const std::vector<std::int64_t>& dims,
                                const std::vector<float>& values);
  /// The names of the outermost scope around.
  Names& names(ScopeId);
  void make();

 private:
  struct Edit {
    bool is_function = false;
    std::unordered_set<const Message*> dead_nodes;
    std::unordered_set<std::string_view> dead_constants, forgotten;
    std::unordered_map<const Message*, Message> replaced;
    std::vector<Message> constants, initializers;  // nodes before all others; at the end
  };

  Edit& edit(ScopeId);
  static Message tensor(const std::vector<std::int64_t>& dims);
  void fill(Message& tensor, const std::vector<float>& values) const;
  static void make(Message& scope, Edit&);

  const Graph& graph_;
  std::unordered_map<Message*, Edit> edits_;         // by the scope's message
  std::map<ScopeId, std::unique_ptr<Names>> names_;  // by the outermost scope
  std::unordered_map<ValueId, std::size_t> released_;
};

}  // namespace mezzo::convert
