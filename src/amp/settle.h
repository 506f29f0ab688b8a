// The exit work of a loss: gradients are unscaled, checked, added to those that were there, and the
// scale moves.
#pragma once

#include <vector>

#include "amp/session.h"

namespace mezzo::amp::detail {

/// For all optimizers of one loss at once, since they share its verdict. `delay_overflow_check`:
/// the scale does not move and no step is skipped.
void settle(const std::vector<OptimizerState*>& optimizers, Session& session, int loss_id,
            bool delay_overflow_check);

/// As above, if no backward pass has just run: what one block left scaled.
void settle_left_scaled(const std::vector<OptimizerState*>& owners, Session& session);

/// Before a scope of these optimizers: what others left scaled of parameters that they own as well
/// is settled, since a parameter has one gradient, and that carries one scale.
void settle_shared(const std::vector<OptimizerState*>& optimizers, Session& session);

/// Settles gradients that earlier blocks left scaled for other losses than this on their own,
/// together with the other optimizers of that block, so that an overflow there moves that loss's
/// scale once and skips that loss's optimizers alone.
void settle_other_losses(const std::vector<OptimizerState*>& optimizers, Session& session,
                         int loss_id);

}  // namespace mezzo::amp::detail
