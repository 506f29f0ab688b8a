// The work of the ranks in the parallel suite.
#pragma once

namespace mezzo::bench {

/// Measures in a process that a launcher gave a rank; rank 0 writes one Result as JSON a line.
int run_parallel_rank(int repeats);

}  // namespace mezzo::bench
