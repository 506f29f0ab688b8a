// The work of the ranks in the parallel suite.
#pragma once

#include <functional>

#include "harness.h"

namespace mezzo::bench {

/// Measures in a process that a launcher gave a rank; rank 0 writes one Result as JSON a line.
int run_parallel_rank(int repeats);

/// The same for the demo's training step.
int run_demo_rank(int repeats);

/// Seconds per call of something that all ranks do together.
double seconds_together(const std::function<void()>& function, int calls);

/// Rank 0 writes the result as a line.
void write_line(const Result& result);

}  // namespace mezzo::bench
