// Profiles: what targets run in 16 bits, where that is less than the standard allows, and what else
// their results must keep to.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/decide/slots.h"
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
  bool avoids_gaps = false;   ///< keeps clear of what ONNX Runtime has no kernel for
  std::span<const Gap> gaps = {};
};

/// The profile of that name; null: there is none.
const Profile* find_profile(std::string_view name);

/// "portable, spec, ort, ...".
std::string profile_names();

/// Does the target run this node in the low type? `why` says why not.
bool profile_allows(const Profile&, const Graph&, const Node&, Element low, std::string* why);

/// Keeps the node to what ONNX Runtime's kernels take, `variables` being the slots of its schema's:
/// type variables that it knows in one type alone become one slot, in every profile. Those that it
/// runs in float32 alone are pinned where the profile avoids such, or checkers accept no other.
void keep_to_kernels(const Profile&, const Graph&, const Node&, const std::vector<Slot>& variables,
                     Slots&);

/// The same for type variables that may be low only where another one is: pinned where that is not
/// pinned low. The slots must be settled, and are not afterwards.
void follow_kernels(const Node&, const std::vector<Slot>& variables, Slots&);

}  // namespace mezzo::convert
