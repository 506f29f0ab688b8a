// Instructions, counted by callgrind: this program starts itself under valgrind, which writes its
// counters after each case.
#pragma once

#include <map>
#include <string>

namespace mezzo::bench {

/// From now on tensors of a few elements take their memory from a list of free blocks: what malloc
/// does for an aligned block depends on all that was allocated before, by a hundred instructions
/// and more.
void take_memory_from_free_blocks();

/// Inside valgrind: the counters start at zero, and are written with a label. Elsewhere nothing.
void start_counting();
void write_counts(const std::string& label);

/// Counts calls of the function, after a few that are not counted; only useful inside valgrind.
template <typename F>
void count_instructions(const std::string& name, int calls, F call) {
  for (int i = 0; i < 3; ++i) call();
  const std::string label = name + "@" + std::to_string(calls);
  start_counting();
  for (int i = 0; i < calls; ++i) call();
  write_counts(label);
}

/// Starts this program under valgrind with `--count-instructions WHAT` and returns instructions per
/// call by case name, such as "mm/ours". Throws Error where valgrind is not installed, or was not
/// when this program was built, or its output cannot be read.
std::map<std::string, double> counted_instructions(const std::string& what);

}  // namespace mezzo::bench
