// Instructions of whole training steps with handles and without.
#pragma once

namespace mezzo::bench {

/// The cases "amp" of counted_instructions(); only useful inside valgrind.
int count_amp_instructions();

}  // namespace mezzo::bench
