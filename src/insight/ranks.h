// One explanation for all processes.
#pragma once

#include "mezzo/insight_explain.h"

namespace mezzo::insight {

/// The explanation of the lowest rank whose step failed, on all ranks that share the optimizer's
/// overflow flag: a collective if there are several.
Explanation agree(Explanation own, const amp::Optimizer& optimizer);

}  // namespace mezzo::insight
