// How many casts the process has made: what the demo and the benchmarks report.
#pragma once

#include <cstdint>

namespace mezzo::casting {

struct CastCounts {
  std::int64_t weight_casts = 0;      // a weight's low-precision copy was filled anew
  std::int64_t activation_casts = 0;  // any other tensor was cast
};

/// Totals of all threads since the process started.
CastCounts cast_counts() noexcept;

void count_weight_casts(std::int64_t count = 1) noexcept;
void count_activation_cast() noexcept;

}  // namespace mezzo::casting
