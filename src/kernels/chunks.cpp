#include "kernels/chunks.h"

#include <algorithm>

namespace mezzo::kernels {

void Chunks::clear() {
  first_.resize(1);
}

void Chunks::add(std::int64_t count) {
  first_.push_back(first_.back() + (count + kElements - 1) / kElements);
}

void Chunks::plan(std::span<const std::int64_t> counts) {
  clear();
  for (const std::int64_t count : counts) add(count);
}

std::int64_t Chunks::tensor_of(std::int64_t chunk) const {
  return std::upper_bound(first_.begin(), first_.end(), chunk) - first_.begin() - 1;
}

}  // namespace mezzo::kernels
