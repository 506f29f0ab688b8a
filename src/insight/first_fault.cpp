#include "insight/first_fault.h"

#include <utility>

#include "insight/cause.h"
#include "insight/observer.h"

namespace mezzo::insight {

namespace {

/// The module of a derivative that no operator of the forward pass stands for, by a parameter that
/// it was given: that of an autograd function, whose own operators nobody sees. Else empty.
std::string module_of_inputs(const ModulePaths& paths, const std::vector<TensorRange>& inputs) {
  for (const TensorRange& input : inputs) {
    if (input.parameter.empty()) continue;
    for (const NamedTensor& each : paths.all()) {
      if (each.name == input.parameter) return each.module;
    }
  }
  return {};
}

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
  if (first.backward && unit.forward < 0) {
    if (std::string owner = module_of_inputs(paths, first.inputs); !owner.empty())
      first.module = std::move(owner);
  }
  const WeightHistory history{[&](const at::Tensor& weight) { return step.has_grown(weight); },
                              [&] { return step.fails_in_float(); }};
  Diagnosis diagnosis =
      diagnose(call, unit.backward, unit.reads_fill, trace.weights_before(origin), history);
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

}  // namespace

void name_fault(StepTrial& step, const ModulePaths& paths, const Trace& trace,
                const Trace::Origin& origin, Explanation& into) {
  if (origin.unit >= 0 && !origin.leaves_first()) {
    into.first = describe(step, paths, trace, origin.unit, into);
  } else {
    blame_leaves(origin.leaves, into);
  }
}

}  // namespace mezzo::insight
