#include "bridge/overlap.h"

#include <algorithm>
#include <functional>

namespace mezzo::bridge {

std::optional<std::pair<Extent, Extent>> find_overlap(std::vector<Extent>& extents) {
  const auto end_of = [](const Extent* extent) {
    return static_cast<const unsigned char*>(extent->begin) + extent->bytes;
  };
  const std::less<const void*> before;
  std::erase_if(extents, [](const Extent& extent) { return extent.bytes == 0; });
  std::sort(extents.begin(), extents.end(),
            [&](const Extent& a, const Extent& b) { return before(a.begin, b.begin); });
  const Extent* last = nullptr;          // of those seen, the one that ends last
  const Extent* last_written = nullptr;  // and of those that are written
  for (const Extent& extent : extents) {
    const Extent* rival = extent.written ? last : last_written;
    if (rival != nullptr && before(extent.begin, end_of(rival))) return std::pair{*rival, extent};
    if (last == nullptr || before(end_of(last), end_of(&extent))) last = &extent;
    if (extent.written &&
        (last_written == nullptr || before(end_of(last_written), end_of(&extent)))) {
      last_written = &extent;
    }
  }
  return std::nullopt;
}

}  // namespace mezzo::bridge
