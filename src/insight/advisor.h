// Advice that makes a failed step pass: each is tried before it is given.
#pragma once

#include <string>
#include <vector>

#include "insight/step_trial.h"
#include "insight/trace.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

class Advisor {
 public:
  /// `origin`: the place in `trace` that failed first.
  Advisor(StepTrial& step, const ModulePaths& paths, const Trace& trace,
          const Trace::Origin& origin);

  /// For a step that passes in float. `first`: the operator to blame; null: weights are. At most
  /// nine runs.
  std::vector<Advice> advice(const Operator* first, Cause cause, const std::string& parameter);

 private:
  bool try_scale(std::vector<Advice>& into);
  bool try_policy(std::vector<Advice>& into);
  bool try_keep_float(std::vector<Advice>& into);
  bool try_bfloat16(std::vector<Advice>& into);
  int runs_for_search() const;

  StepTrial& step_;
  const ModulePaths& paths_;
  const Trace& trace_;
  const Trace::Origin& origin_;
};

}  // namespace mezzo::insight
