// A list of tensors cut into pieces of nearly equal size, for threads and for sums whose value must
// not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/buffers.h"

namespace mezzo::kernels {

class Chunks {
 public:
  /// 64 KiB of floats: several streams of it stay in the second-level cache.
  static constexpr std::int64_t kElements = 16384;

  /// Plans for tensors of these sizes; memory is kept from plan to plan.
  void plan(std::span<const std::int64_t> counts);
  void clear();
  void add(std::int64_t count);

  std::int64_t size() const { return first_.back(); }
  std::int64_t tensors() const { return static_cast<std::int64_t>(first_.size()) - 1; }
  /// The first chunk of a tensor; first(tensors()) is size().
  std::int64_t first(std::int64_t tensor) const { return first_[static_cast<std::size_t>(tensor)]; }
  std::int64_t tensor_of(std::int64_t chunk) const;

  /// visit(tensor, range, chunk) for chunks begin to end - 1. `count_of(tensor)` gives the sizes.
  template <typename CountOf, typename Visit>
  void for_each(std::int64_t begin, std::int64_t end, CountOf&& count_of, Visit&& visit) const {
    if (begin >= end) return;
    std::int64_t tensor = tensor_of(begin);
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      while (chunk >= first(tensor + 1)) ++tensor;
      const std::int64_t from = (chunk - first(tensor)) * kElements;
      const std::int64_t count = count_of(tensor);
      visit(tensor, Range{from, from + kElements < count ? from + kElements : count}, chunk);
    }
  }

 private:
  std::vector<std::int64_t> first_{0};
};

}  // namespace mezzo::kernels
