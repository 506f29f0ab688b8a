// The origin of a gradient that is not finite, in one number, of which ranks take the maximum. So
// the flag that they agree on carries its origin, at no further collective.
#pragma once

#include <cstdint>
#include <optional>

namespace mezzo::ranks {

/// Where the overflow was that a flag reports.
struct OverflowOrigin {
  int rank = 0;                            // the lowest one that had it
  std::optional<std::int64_t> place = {};  // of the gradient in that rank's list

  friend bool operator==(const OverflowOrigin&, const OverflowOrigin&) = default;
};

/// The number of a rank with an overflow: more than 0, the more the lower the rank, and exact in
/// double. A rank without one says 0. A place of 2^32 - 1 or more is left out.
double overflow_number(const OverflowOrigin& own, int size);

/// The origin behind the maximum over `size` ranks; nothing if it is 0.
std::optional<OverflowOrigin> overflow_origin(double maximum, int size);

}  // namespace mezzo::ranks
