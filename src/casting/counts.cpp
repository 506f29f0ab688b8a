#include "casting/counts.h"

#include <atomic>

namespace mezzo {
namespace {

std::atomic<std::int64_t> weight_casts{0};
std::atomic<std::int64_t> activation_casts{0};

}  // namespace

CastCounts cast_counts() noexcept {
  return {weight_casts.load(std::memory_order_relaxed),
          activation_casts.load(std::memory_order_relaxed)};
}

void casting::count_weight_casts(std::int64_t count) noexcept {
  weight_casts.fetch_add(count, std::memory_order_relaxed);
}

void casting::count_activation_cast() noexcept {
  activation_casts.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace mezzo
