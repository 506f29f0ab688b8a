// Ways from a value to what it is made of, and to what reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// How far one search goes: what moves values, or computes with them, does not go on for long.
inline constexpr std::size_t kFarthestWalk = 64;

/// Where a walk goes on from a value.
enum class Onward : std::uint8_t {
  kStop,
  kFirst,  ///< through the first input, or output
  kAll,    ///< through all of them
};

/// Asked about a value with the node of the standard that makes it. Null: an input, a constant, or
/// an operator of another domain; and what bodies and functions give or take, through which a walk
/// goes as if they stood in the place of their owners, unless the answer is kStop.
using VisitBack = std::function<Onward(ValueId, const Node*)>;

/// Goes back from values to what they are made of, nearest first, each once, `farthest` at most.
/// `seen`, one flag a value, keeps several walks from going where one was.
void walk_back(const Graph&, const std::vector<ValueId>& from, std::size_t farthest,
               const VisitBack&, std::vector<bool>* seen = nullptr);

/// Goes back from a value in the same way to goals. Returns the values on a way to one, with both
/// ends, nearest first.
struct WayStep {
  Onward onward = Onward::kStop;
  bool is_goal = false;
};
using VisitWay = std::function<WayStep(ValueId, const Node*)>;
std::vector<ValueId> ways_back_to_goals(const Graph&, ValueId from, std::size_t farthest,
                                        const VisitWay&);

/// Asked about a reader of a value: a node of the standard.
using VisitOn = std::function<Onward(ValueId, const Use&, const Node&)>;

/// Goes on from values to what reads them, in the same way.
void walk_on(const Graph&, const std::vector<ValueId>& from, std::size_t farthest, const VisitOn&);

}  // namespace mezzo::convert
