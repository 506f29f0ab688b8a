// Profiles: what targets run in 16 bits, where that is less than the standard allows, and what else
// their results must keep to.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "convert/graph/graph.h"

namespace mezzo::convert {

/// An operator that a target does not run in 16 bits.
struct Gap {
  std::string_view op;
  int before;                  // the operator's versions before this opset; 0: all
  std::string_view attribute;  // only where it is set to anything but `unless`
  std::string_view unless;
  std::string_view why;
};

struct Profile {
  std::string_view name;
  bool computes_half = true, computes_bfloat16 = true;
  bool weights_only = false;  ///< 16 bits are a way of storing, nothing else
  bool must_load = false;     ///< what ONNX Runtime on this machine refuses is no result
  bool avoids_joins = false;  ///< keeps clear of what ONNX Runtime joins wrongly
  std::span<const Gap> gaps = {};
};

/// The profile of that name; null: there is none.
const Profile* find_profile(std::string_view name);

/// "portable, spec, ort, ...".
std::string profile_names();

/// Does the target run this node in the low type? `why` says why not.
bool profile_allows(const Profile&, const Graph&, const Node&, Element low, std::string* why);

}  // namespace mezzo::convert
