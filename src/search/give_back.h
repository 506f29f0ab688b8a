// The half of a search that makes a set smaller: group testing, as in Zeller's delta debugging.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace mezzo::search {

/// Names that stay in float.
using NameSet = std::set<std::string>;

/// Names that are perhaps not needed.
struct Group {
  std::vector<std::string> names;
  bool is_needed = false;  ///< as a whole
  bool is_first_half = false;
};

/// Is this set good enough? Nothing if no further question may be asked.
using Fits = std::function<std::optional<bool>(const NameSet&)>;

/// Takes out of `kept`, which fits, the names of `groups` that are not needed: whole groups first,
/// then their halves. Returns the set that is left when all groups are done or `fits` gives
/// nothing.
NameSet give_back(NameSet kept, std::deque<Group> groups, const Fits& fits);

}  // namespace mezzo::search
