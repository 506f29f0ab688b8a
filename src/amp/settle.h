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

/// What earlier blocks left scaled for other losses than this is settled on its own, so that an
/// overflow there moves that loss's scale and skips that loss's optimizers alone.
void settle_other_losses(const std::vector<OptimizerState*>& optimizers, Session& session,
                         int loss_id);

}  // namespace mezzo::detail
