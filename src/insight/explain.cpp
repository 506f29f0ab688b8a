#include <optional>
#include <sstream>
#include <utility>

#include "amp/session.h"
#include "amp/skip_explainer.h"
#include "insight/advisor.h"
#include "insight/cause.h"
#include "insight/first_fault.h"
#include "insight/observer.h"
#include "insight/ranks.h"
#include "insight/skip_summary.h"
#include "insight/step_trial.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

namespace {

/// "input of shape [4, 8] holds 1 NaN, the first at [2, 3]"
std::string text_of(const BadLeaf& leaf) {
  std::ostringstream text;
  text << "a tensor of shape " << at::IntArrayRef(leaf.range.sizes) << " holds " << leaf.range.nans
       << " NaN and " << leaf.range.infs << " infinities, the first at "
       << at::IntArrayRef(leaf.range.not_finite_at);
  return text.str();
}

Explanation explain_here(const detail::Subject& subject, const std::function<at::Tensor()>& loss,
                         int loss_id) {
  StepTrial step(subject, loss, loss_id);
  Explanation result;
  result.level = step.session().plan().properties.opt_level;
  result.loss_scale = step.scale();
  const ModulePaths paths(step.models());
  Observer observer(paths);
  const StepOutcome outcome = step.run(observer);
  result.reproduced = !outcome.bad_gradients.empty();
  if (!result.reproduced) {
    result.evaluations = step.runs();
    return result;
  }
  result.parameter = outcome.first_bad;
  const Trace& trace = observer.trace();
  const Trace::Origin origin = trace.origin_of(outcome.bad_gradients, outcome.bad_results);
  name_fault(step, paths, trace, origin, result);
  const StepOutcome& in_float = step.in_float();
  result.runs_in_float = in_float.ran;
  result.fails_in_float = in_float.ran && !in_float.passed;
  if (in_float.passed && result.cause != Cause::kBadInput) {
    result.advice =
        Advisor(step, paths, trace, origin)
            .advice(result.first ? &*result.first : nullptr, result.cause, result.parameter);
  } else {
    Advice advice{
        .text = remedy(result.cause, result.first ? &*result.first : nullptr, result.parameter)};
    if (result.cause == Cause::kBadInput)
      advice.text = text_of(*origin.leaves.front()) + ": " + advice.text;
    result.advice.push_back(std::move(advice));
  }
  result.evaluations = step.runs();
  return result;
}

/// Skipped steps are explained wherever this room is linked (Options::explain_skips).
const bool kExplainsSkips = [] {
  mezzo::amp::detail::set_skip_explainer(&explain_skip);
  return true;
}();

}  // namespace

Explanation detail::explain(const Subject& subject, const std::function<at::Tensor()>& loss,
                            int loss_id) {
  Explanation own = explain_here(subject, loss, loss_id);
  return agree(std::move(own), subject.optimizers.front());
}

}  // namespace mezzo::insight
