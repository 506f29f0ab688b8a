// Do pieces of memory that a kernel writes overlap?
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace mezzo::bridge {

struct Extent {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t index = 0;  // the caller's name of it
  bool written = true;
};

/// Two extents that share a byte, at least one of them written; nothing if none do. Empty
/// extents overlap nothing. Sorts the list.
std::optional<std::pair<Extent, Extent>> find_overlap(std::vector<Extent>& extents);

}  // namespace mezzo::bridge
