// Skips and scales of one run, from its steps.
#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/report.h"

namespace mezzo::report {

/// Steps that were skipped between an event (or the run's begin) and the next one.
struct Skips {
  std::int64_t first_step = 0, last_step = 0;  ///< the steps among which they are
  std::int64_t epoch = 0;
  std::int64_t count = 0;
  double scale_before = 0;  ///< 0 if there was no event before
  double scale_after = 0;
};

/// The skips of a run's events in order; events without skips are left out.
std::vector<Skips> skips_of(const Run&);

/// The scale's changes of direction: where it began to fall after growing, or to grow after
/// falling.
struct Turns {
  int count = 0;
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t skipped = 0;  ///< between these steps
};
Turns turns_of(const Run&);

}  // namespace mezzo::report
