#include <optional>
#include <sstream>
#include <utility>

#include "amp/session.h"
#include "insight/advisor.h"
#include "insight/cause.h"
#include "insight/observer.h"
#include "insight/ranks.h"
#include "insight/step_trial.h"
#include "insight/unobserved.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

namespace {

/// The first operator in full: the step runs once more, looked at closely there.
Operator describe(StepTrial& step, const ModulePaths& paths, const Trace& trace, int origin,
                  Explanation& into) {
  const Unit& unit = trace.unit(origin);
  Operator first;
  first.name = trace.name_of(origin);
  first.module = trace.module_of(origin);
  first.backward = unit.backward;
  if (unit.ordinal < 0) {
    into.cause = unit.backward ? Cause::kGradientOverflow : Cause::kOverflow;
    return first;
  }
  Observer observer(paths, unit.ordinal, unit.reads_fill);
  step.run(observer);
  const CloseUp& call = *observer.close_up();
  first.inputs = call.inputs();
  first.output = call.output();
  const Unobserved unobserved;
  Diagnosis diagnosis =
      diagnose(call, unit.backward, unit.reads_fill, trace.weights_before(origin));
  into.cause = diagnosis.cause;
  if (!diagnosis.parameter.empty()) into.parameter = std::move(diagnosis.parameter);
  return first;
}

void blame_leaves(const std::vector<const BadLeaf*>& leaves, Explanation& into) {
  if (leaves.empty()) return;
  into.cause = Cause::kBadInput;
  for (const BadLeaf* leaf : leaves) {
    if (leaf->weight == nullptr) continue;
    into.cause = Cause::kExplodedWeights;
    into.parameter = leaf->weight->name;
    return;
  }
}

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
  const Trace::Origin origin = trace.origin_of(outcome.bad_gradients);
  if (origin.unit >= 0) {
    result.first = describe(step, paths, trace, origin.unit, result);
  } else {
    blame_leaves(origin.leaves, result);
  }
  const StepOutcome in_float = step.attempt({.all_float = true}, 1);
  result.fails_in_float = in_float.ran && !in_float.passed;
  if (result.first && in_float.passed) {
    result.advice = Advisor(step, paths, trace, origin.unit)
                        .advice(*result.first, result.cause, result.parameter);
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

}  // namespace

Explanation detail::explain(const Subject& subject, const std::function<at::Tensor()>& loss,
                            int loss_id) {
  Explanation own = explain_here(subject, loss, loss_id);
  return agree(std::move(own), subject.optimizers.front());
}

}  // namespace mezzo::insight
