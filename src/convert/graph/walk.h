// The bounded search that every pin uses: ways from a value to what it is made of, and to what
// reads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// How far one search goes: what moves values, or computes with them, does not go on for long.
inline constexpr std::size_t kFarthestWalk = 64;

/// Searches from places, nearest first, `farthest` at most: `next` gives the places behind one.
/// Returns all that were found. All other walks are made of it; alone it is for places that are
/// more than a value.
template <typename Place, typename Next>
std::vector<Place> walk_places(std::vector<Place> places, std::size_t farthest, const Next& next) {
  for (std::size_t i = 0; i < std::min(places.size(), farthest); ++i) {
    const Place place = places[i];
    const std::vector<Place> behind = next(place);
    places.insert(places.end(), behind.begin(), behind.end());
  }
  return places;
}

/// Where a walk goes on from a value.
enum class Onward : std::uint8_t {
  kStop,
  kFirst,  ///< through the first input, or output
  kAll,    ///< through all of them
};

/// Which bodies a walk passes as if they stood in the place of their owners.
enum class Through : std::uint8_t {
  kNothing,
  kCalls,    ///< of functions
  kInlined,  ///< of functions and If: where engines put bodies in the place of their owners
  kBodies,   ///< all
};

/// The bounds of a walk.
struct WalkBounds {
  std::size_t farthest = kFarthestWalk;  ///< values that it looks at
  Through through = Through::kBodies;
  bool any_domain = false;  ///< it goes on through operators that are not of the standard
};

/// The same value inside bodies, or outside of the body that reads it: what a body gives, or what
/// its owner reads. Empty for values that no body that may be passed gives or takes.
std::vector<ValueId> values_behind(const Graph&, ValueId, Through);

/// Asked about a value with the node of the standard that makes it. Null: an input, a constant, or
/// an operator of another domain; and what bodies and functions give or take, through which a walk
/// goes as if they stood in the place of their owners, unless the answer is kStop.
using VisitBack = std::function<Onward(ValueId, const Node*)>;

/// Goes back from values to what they are made of, nearest first, each once. Returns all that were
/// found. `seen`, one flag a value, keeps several walks from going where one was.
std::vector<ValueId> walk_back(const Graph&, const std::vector<ValueId>& from, const WalkBounds&,
                               const VisitBack&, std::vector<bool>* seen = nullptr);

/// Goes back from a value in the same way to goals. Returns the values on a way to one, with both
/// ends, nearest first.
struct WayStep {
  Onward onward = Onward::kStop;
  bool is_goal = false;
};
using VisitWay = std::function<WayStep(ValueId, const Node*)>;
std::vector<ValueId> ways_back_to_goals(const Graph&, ValueId from, const WalkBounds&,
                                        const VisitWay&);

/// Asked about a reader of a value: a node of the standard, or of any domain where those may be
/// passed.
using VisitOn = std::function<Onward(ValueId, const Use&, const Node&)>;

/// Goes on from values to what reads them, in the same way.
std::vector<ValueId> walk_on(const Graph&, const std::vector<ValueId>& from, const WalkBounds&,
                             const VisitOn&);

}  // namespace mezzo::convert
