// Instructions of single operators under the casting layer, counted by callgrind in one run of this
// program.
#pragma once

#include <map>
#include <string>

namespace mezzo::bench {

/// Runs every case under callgrind, which dumps its counters after each; only useful inside
/// valgrind.
int count_casting_instructions();

/// Starts this program under valgrind and returns instructions per call by case name, such as
/// "mm/ours". Throws Error where valgrind is not installed or its output cannot be read.
std::map<std::string, double> casting_instructions();

}  // namespace mezzo::bench
