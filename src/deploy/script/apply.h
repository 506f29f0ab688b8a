// The verdicts become casts.
#pragma once

#include "deploy/script/casts.h"

namespace mezzo::deploy::script {

/// Puts the casts that the verdicts ask for into the method's graph. Results are as in the
/// original.
void apply_verdicts(ScriptMethod& method, Casts& casts, DType low);

}  // namespace mezzo::deploy::script
