// The exit work of a loss: gradients are unscaled, checked, added to those that were there, and the
// scale moves.
#pragma once

#include <vector>

#include "amp/session.h"

namespace mezzo::detail {

/// For all optimizers of one loss at once, since they share its verdict. `delay_overflow_check`:
/// the scale does not move and no step is skipped.
void settle(const std::vector<OptimizerState*>& optimizers, Session& session, int loss_id,
            bool delay_overflow_check);

}  // namespace mezzo::detail
