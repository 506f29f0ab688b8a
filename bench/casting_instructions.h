// Instructions of single operators under the casting layer.
#pragma once

namespace mezzo::bench {

/// The cases "casting" of counted_instructions(), such as "mm/ours"; only useful inside valgrind.
int count_casting_instructions();

}  // namespace mezzo::bench
