#include "search/give_back.h"

#include <iterator>

namespace mezzo::search {

NameSet give_back(NameSet kept, std::deque<Group> groups, const Fits& fits) {
  while (!groups.empty()) {
    const Group group = std::move(groups.front());
    groups.pop_front();
    if (group.names.empty()) continue;
    if (!group.is_needed) {
      NameSet rest = kept;
      for (const std::string& name : group.names) rest.erase(name);
      const std::optional<bool> does = fits(rest);
      if (!does) return kept;
      if (*does) {
        kept = std::move(rest);
        // The two halves together cannot go.
        if (group.is_first_half) groups.front().is_needed = true;
        continue;
      }
    }
    if (group.names.size() == 1) continue;
    const auto middle =
        std::next(group.names.begin(), static_cast<std::ptrdiff_t>(group.names.size() / 2));
    groups.push_back({{group.names.begin(), middle}, false, true});
    groups.push_back({{middle, group.names.end()}, false, false});
  }
  return kept;
}

}  // namespace mezzo::search
