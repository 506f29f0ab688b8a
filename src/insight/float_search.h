// The search for what must be float so that a failed step passes: operators of a policy, or modules
// of a network.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "insight/step_trial.h"
#include "insight/trace.h"

namespace mezzo::insight {

/// The names that may be kept in float, and how a step runs with some of them.
struct FloatCandidates {
  /// Those that lie at the place where values stopped being finite, the best first.
  std::function<std::vector<std::string>(const Trace&, const Trace::Origin&)> near;
  /// All that a step could use, in any order.
  std::function<std::vector<std::string>(const Trace&)> all;
  std::function<Precision(const std::vector<std::string>&)> keeping;
};

/// Names with which the step passes in float, or none that were found. One name is added for each
/// place where the step fails next; where that does not end soon, all are tried, and those that are
/// not needed are taken out again. At most `most_runs` of the step's runs.
std::vector<std::string> search_float(StepTrial& step, const ModulePaths& paths, const Trace& trace,
                                      const Trace::Origin& origin,
                                      const FloatCandidates& candidates, int most_runs);

}  // namespace mezzo::insight
