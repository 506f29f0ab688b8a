// The first fault of a step that was observed.
#pragma once

#include "insight/step_trial.h"
#include "insight/trace.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

/// Fills in the operator, the cause and the parameter. If an operator is to blame, the step runs
/// once more, so that it can be looked at closely.
void name_fault(StepTrial& step, const ModulePaths& paths, const Trace& trace,
                const Trace::Origin& origin, Explanation& into);

}  // namespace mezzo::insight
