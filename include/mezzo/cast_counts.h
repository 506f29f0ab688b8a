// How many casts levels and scopes have made: what a report shows, and what a cast cache should
// keep small.
#pragma once

#include <cstdint>

#include "mezzo/export.h"

namespace mezzo {

/// How many casts were made.
struct CastCounts {
  std::int64_t weight_casts = 0;      ///< a weight's low-precision copy was filled anew
  std::int64_t activation_casts = 0;  ///< any other tensor was cast
};

/// Totals of all threads since the process started. Thread-safe.
MEZZO_API CastCounts cast_counts() noexcept;

}  // namespace mezzo
