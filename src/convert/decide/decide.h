// Decisions: every type variable of every node gets float32 or the low type.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "convert/decide/policy.h"
#include "convert/decide/slots.h"
#include "convert/graph/constants.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Which slot stands for what. Values that are not float32 have none.
struct SlotMap {
  Slots slots;
  std::vector<Slot> native;             // per value: the type it is made in; none for constants
  std::vector<std::vector<Slot>> uses;  // per value, per use: the type it is read in
  std::vector<std::vector<Slot>> variables;  // per node, per variable of its schema
  std::vector<bool> is_constant;             // per value
};

/// Slots of the whole graph, with what the standard demands: equalities and impossibilities.
SlotMap map_slots(const Graph&, const ConvertPolicy&, const Constants&);

struct Decisions {
  SlotMap map;
  std::vector<bool> low;            // per slot
  std::vector<bool> for_tables;     // per slot: low for the bytes of a table; empty: none is
  std::vector<ValueId> low_tables;  // constants that are stored low behind a Cast, sorted
  std::vector<Decision> list;
  std::vector<std::string> warnings;
  /// Where only weights are stored low: plan keys, sorted, of the nodes whose weights are not.
  std::vector<std::string> float_weights;
  Allowed allowed;

  bool is_low(Slot slot) const {
    return slot != kNoSlot && low[static_cast<std::size_t>(map.slots.root(slot))];
  }
  bool is_for_table(Slot slot) const {
    return slot != kNoSlot && !for_tables.empty() &&
           for_tables[static_cast<std::size_t>(map.slots.root(slot))];
  }
  bool is_low_table(ValueId id) const { return std::ranges::binary_search(low_tables, id); }
  bool is_low_value(ValueId id) const { return is_low(map.native[static_cast<std::size_t>(id)]); }
  bool is_low_use(ValueId id, std::size_t use) const {
    return is_low(map.uses[static_cast<std::size_t>(id)][use]);
  }
};

/// The question about a type variable of a node, without the answer.
Decision question_about(const Graph&, const Node&, std::size_t variable);

/// The decision about every type variable of every node, and who made it.
std::vector<Decision> decisions_of(const Graph&, const ConvertPolicy&, const Decisions&);

/// The question whether a constant is stored low behind a Cast. In the place of a type variable
/// stands kStoredTable.
Decision question_about_table(const Graph&, ValueId constant);
inline constexpr std::string_view kStoredTable = "(table)";

/// A type that no node has, but what goes into a body or a function, or comes out of it.
struct Passage {
  Slot slot = kNoSlot;
  Decision question;  // without the answer
};

/// The passages of a graph, each slot once.
std::vector<Passage> passages_of(const Graph&, const SlotMap&);

/// The part of a plan with which it decides again as it was decided: the list, what passages
/// became, and which tables are stored low.
std::vector<Decision> planned_of(const Graph&, const Decisions&);

/// The consequences for nodes that have nothing to decide, for the report: operators that nothing
/// describes, and float outputs of nodes with bodies and of calls. `variable` is empty, or the
/// output's name.
std::vector<Decision> consequences_of(const Graph&, const Decisions&);

/// Evidence about a graph besides the policy.
struct Evidence {
  const ValueRanges* ranges = nullptr;          // measured on samples
  const Plan* plan = nullptr;                   // instead of the policy
  const std::set<std::string>* kept = nullptr;  // plan keys of nodes that a search keeps float32
};

Decisions decide(const Graph&, const ConvertPolicy&, Constants&, const Evidence& = {});

/// Warnings about inputs asked for in the low type whose values become integers.
std::vector<std::string> warnings_of_narrowed_ids(const Graph&, const ConvertPolicy&);

/// Pins what is bound to values whose types are not known: nothing there can be cast.
void pin_unknown_types(const Graph&, SlotMap&);

/// Pins values that were measured beyond the low type's range, or where its digits end.
void pin_ranges(const Graph&, const ConvertPolicy&, const ValueRanges&, SlotMap&);

/// The outcome for excluded tensors and inputs.
struct ExcludedValues {
  std::vector<NodeId> readers;        // nodes that read one of them
  std::vector<std::string> warnings;  // patterns that match nothing
};

/// Pins the values and inputs that the policy excludes to float32.
ExcludedValues pin_excluded_values(const Graph&, const ConvertPolicy&, SlotMap&);

/// The nodes on a way from a value that matches `from` to one that matches `to`, through bodies and
/// functions too; nodes that have bodies are not among them.
std::vector<NodeId> nodes_between(const Graph&, const NamePattern& from, const NamePattern& to);

/// Pins what reads numbers of the model that rounding would lose: constants, the value of
/// ConstantOfShape, bounds and borders in attributes. The slots must be settled; the answer is what
/// to warn of. Throws ConfigError if a plan (`planned`) wants them low.
std::vector<std::string> pin_constants(const Graph&, const ConvertPolicy&, Constants&, SlotMap&,
                                       bool planned);

/// For every slot: is it low? Pins hold; what is free takes the fewest Casts, then the fewest bytes
/// through them. The slots must be settled.
std::vector<bool> place_casts(const Graph&, const ConvertPolicy&, const SlotMap&);

/// Has the node types of its own to decide?
bool is_decidable(const Node&);

/// The name that patterns are matched with: the node's or, if it has none, its first output's.
std::string_view name_of_node(const Graph&, const Node&);

/// The variable that decides what the node computes in: that of its first output or input.
std::size_t primary_variable(const Graph&, const SlotMap&, NodeId);

/// Is the value a Cast of a value that already has the low type? Then its low copy costs nothing.
ValueId low_source(const Graph&, ValueId, Element low);

}  // namespace mezzo::convert
