// How values come into the bodies of a node and out of them: If, Loop, Scan, SequenceMap,
// functions.
#pragma once

#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// Has the node a body, or is it a call of a function? Then what it makes is made inside.
bool is_hollow(const Node&);

/// Where the value at input `index` of a hollow node goes: inputs of its bodies, and the output
/// that is that value where a loop makes no turn.
std::vector<ValueId> values_after_input(const Graph&, const Node&, std::size_t index);

/// As above, for every input of the node.
std::vector<std::vector<ValueId>> values_after_inputs(const Graph&, const Node&);

/// The sources of output `index` of a hollow node: outputs of its bodies, and the input that it is
/// if a loop makes no turn.
std::vector<ValueId> values_before_output(const Graph&, const Node&, std::size_t index);

/// Where output `index` of a body goes: the output of its owner, and the input of the next turn.
std::vector<ValueId> values_after_result(const Graph&, ScopeId, std::size_t index);

/// As above, for every output of the body.
std::vector<std::vector<ValueId>> values_after_results(const Graph&, ScopeId);

/// The sources of input `index` of a body: the input of its owner, and the output of the turn
/// before.
std::vector<ValueId> values_before_entry(const Graph&, ScopeId, std::size_t index);

}  // namespace mezzo::convert
