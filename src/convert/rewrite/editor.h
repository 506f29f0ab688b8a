// The editor behind apply(): one tree of scopes at a time, the main graph or one instance of a
// function. Its parts: apply.cpp (names, scopes, declared types), apply_weights.cpp (constants),
// apply_bounds.cpp (what is clamped or raised) and apply_nodes.cpp (nodes, casts, functions).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/graph/names.h"
#include "convert/rewrite/apply.h"

namespace mezzo::convert {

/// How a value is called in each type after the conversion. Empty: not there in that type.
struct Twins {
  std::string_view high, low;
};

class Editor {
 public:
  Editor(Document& document, const Graph& graph, const Decisions& decisions, Constants& constants,
         Element low, Storage storage, Changes& changes)
      : document_(document),
        graph_(graph),
        decisions_(decisions),
        constants_(constants),
        low_(low),
        storage_(storage),
        changes_(changes),
        twins_(graph.values.size()) {
    index_uses();
  }
  void run();

 private:
  void index_uses();
  bool wants(ValueId id, Label label) const;
  bool is_constant(ValueId id) const;
  std::string suffix(bool low) const;
  // The type in which outputs of the model demand the value, if they do.
  std::optional<bool> output_label(ValueId id) const;
  // Names of every value of the tree, before anything is edited: bodies look up values of the
  // scopes around them.
  void name_values(ScopeId id, Names& names);
  // Inputs, initializers, outputs of nodes: in file order.
  std::vector<ValueId> ordered_values(const Scope& scope) const;
  void name_value(ValueId id, Names& names);
  // A judge's model: everything float32, what is low is rounded where it is made (emulate.cpp).
  bool is_emulated() const {
    return storage_ == Storage::kEmulated || storage_ == Storage::kEmulatedWeights;
  }
  bool is_rounded_where_made(ValueId id) const;
  void name_emulated(ValueId id, Names& names);
  void outside_emulated(ValueId id, std::vector<Message>& first);
  void outputs_emulated(const Node& node, Message& message, std::vector<Message>& after);
  void round(std::string_view from, std::string_view to, ScopeId scope,
             std::vector<Message>& nodes);
  void round_constant(ValueId id, std::vector<Message>& nodes);
  // Is the constant, under its own name, of the low type afterwards?
  bool stored_low(ValueId id) const;
  void edit_tree(ScopeId root, Message& target);
  void edit_scope(ScopeId id, Message& target);
  bool is_dead(const Node& node) const;
  static Field made(std::uint32_t number, Message message);
  const Twins& twins(ValueId id) const { return twins_[static_cast<std::size_t>(id)]; }
  // Inputs and initializers: their other type is made at the start of the scope.
  void outside_value(ValueId id, std::vector<Message>& first, std::vector<Field>& initializers);
  void weights_only(ValueId id, std::vector<Message>& casts);
  // Is it a weight that is stored low and computed with in float32? Settled before anything is
  // edited: the tensor is read for it.
  bool is_stored_low_only(ValueId id) const {
    return !stored_low_only_.empty() && stored_low_only_[static_cast<std::size_t>(id)];
  }
  void settle_weights_only();
  // Treats constants besides rounding them. Settled before anything is edited too.
  void settle_bounds();
  Bounds bounds_for(ValueId id);
  bool is_read_low(ValueId id, std::size_t use) const;
  void report_bounds(ValueId id, const Bounds& bounds);
  Bounds bounds_of(ValueId id) const;
  // Rounding at run time would not do it.
  bool is_stored_rounded(ValueId id) const {
    return storage_ == Storage::kConverted || bounds_.contains(id);
  }
  void raise_bound(NodeId id, const Node& node, Message& message);
  bool may_be_stored_low_only(ValueId id);
  // Does a body or a function give the value, in the low type, where `source` was not made by one
  // of its nodes? Then a node must stand between.
  bool is_handed_on(ValueId id, ValueId source) const;
  // Did the caller name this reader of weights to stay float32?
  bool stays_float(const Node& reader) const;
  bool keeps_digits(const Use& use);
  void count_weight(ValueId id);
  void count_rounding(ValueId id);
  void count_rounding(const ConstantFacts& facts);
  void report_cast(const Value& value, bool from_low, std::string_view reason);
  Message cast_node(ValueId id, bool from_low);
  Message cast_message(std::string_view from, std::string_view to, Element element, ScopeId scope);
  bool is_output(std::string_view name) const;
  // Readers of old models infer nothing through a Cast that names its type.
  void declare(std::string_view name, Element element);
  Message constant_node(std::string_view output, Message tensor);
  // Returns false if the initializer goes away.
  bool edit_initializer(const Scope& scope, Field& field);
  static void rename_tensor(Field& field, std::string_view before, std::string_view after);
  static void replace(Field& field, Message message);
  // Declared types of inputs, outputs and values in between.
  void edit_info(const Scope& scope, Field& field, bool is_input);
  // An output takes the name of the copy that has its type. The model's own outputs keep theirs.
  void edit_output(ScopeId id, Field& field, std::size_t index);
  void set_element(Field* type);
  std::string_view name_for(ValueId id, bool low) const;
  void edit_node(NodeId id, Message& message, std::vector<Message>& after);
  void rename_inputs(NodeId id, const Node& node, Message& message);
  void edit_outputs(const Node& node, Message& message, std::vector<Message>& after);
  // The attribute that says which type the output has.
  void set_output_type(const Node& node, Message& message);
  std::unique_ptr<Message> zero_value() const;
  void edit_constant_node(const Node& node, Message& message, std::vector<Message>& after);
  // The node's value as a tensor of the low type.
  Message rounded_value(const Node& node);
  Message rounded_constant(ValueId id, std::string_view name);
  void retype_constant(const Node& node, Message& message);
  void edit_bodies(const Node& node, Message& message);
  // Calls of a function whose types changed go to a copy of it with these types.
  void specialise(const Node& node, Message& message);
  Document& document_;
  const Graph& graph_;
  const Decisions& decisions_;
  Constants& constants_;
  Element low_;
  Storage storage_;
  Changes& changes_;
  std::vector<Twins> twins_;
  std::vector<bool> stored_low_only_;  // per value; empty if arithmetic goes low too
  // Per node and input: which of the value's uses that is. Shared constants have very many.
  std::vector<std::vector<std::size_t>> use_of_input_;
  std::unordered_map<ValueId, Bounds> bounds_;  // of constants that are not only rounded
  std::unordered_map<NodeId, bool> quantised_;  // asked of readers that have many inputs
  Names* names_ = nullptr;
  bool has_training_ = false;
  std::vector<Message> old_casts_;
  std::unordered_set<std::string> function_names_;
  std::map<std::string, std::string_view> specialised_;
  std::vector<std::unique_ptr<Message>> new_functions_;
};

}  // namespace mezzo::convert
