#include "insight/skip_summary.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "amp/last_call.h"
#include "amp/model_state.h"
#include "amp/optimizer_state.h"
#include "insight/first_fault.h"
#include "insight/observer.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

using mezzo::amp::detail::LastCall;
using mezzo::amp::detail::OptimizerState;

bool is_sound(const at::Tensor& tensor) {
  const Unobserved unobserved;
  return finiteness_of(tensor.detach()).finite();
}

/// A loss whose backward pass gives the results of the call the gradients that they got. Where
/// these are not finite, the forward pass matters alone.
at::Tensor stand_in_loss(const std::vector<at::Tensor>& results,
                         const std::vector<at::Tensor>& gradients, bool forward_alone) {
  at::Tensor sum;
  for (std::size_t i = 0; i < std::min(results.size(), gradients.size()); ++i) {
    if (!gradients[i].defined() || !results[i].requires_grad()) continue;
    const at::Tensor wide =
        results[i].scalar_type() == at::kDouble ? results[i] : results[i].to(at::kFloat);
    const at::Tensor part =
        forward_alone ? wide.sum() : wide.mul(gradients[i].to(wide.scalar_type())).sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}

/// Nothing if the call passes.
std::optional<std::string> summary_of_call(OptimizerState& optimizer, const LastCall& call) {
  const bool forward_alone = !std::ranges::all_of(
      call.gradients, [](const at::Tensor& g) { return !g.defined() || is_sound(g); });
  std::vector<at::Tensor> results;
  const std::function<at::Tensor()> loss = [&] {
    results = call.again();
    return stand_in_loss(results, call.gradients, forward_alone);
  };
  detail::Subject subject;
  subject.optimizers.emplace_back(
      std::shared_ptr<OptimizerState>(std::shared_ptr<void>(), &optimizer));
  StepTrial step(subject, loss, /*loss_id=*/0, /*scale=*/1.0);
  const ModulePaths paths(step.models());
  Observer observer(paths);
  std::vector<at::Tensor> bad = step.run(observer).bad_gradients;
  if (forward_alone) {
    bad.clear();
    for (const at::Tensor& result : results) {
      if (result.defined() && !is_sound(result)) bad.push_back(result);
    }
    if (bad.empty())
      return "the loss gives the model's results gradients that are not finite, though the results "
             "are";
  }
  if (bad.empty()) return std::nullopt;
  const Trace& trace = observer.trace();
  Explanation why{.reproduced = true};
  std::erase_if(results, [](const at::Tensor& each) { return !each.defined() || is_sound(each); });
  name_fault(step, paths, trace, trace.origin_of(bad, results), why);
  return why.summary();
}

std::string text_for(OptimizerState& optimizer) {
  bool any = false;
  for (const auto& model : optimizer.session().models()) {
    const std::shared_ptr<const LastCall> call = model->last_call();
    if (call == nullptr || !optimizer.slots().steps(*model)) continue;
    const bool was_reached =
        std::ranges::any_of(call->gradients, [](const at::Tensor& g) { return g.defined(); });
    if (!was_reached) continue;
    any = true;
    if (const auto summary = summary_of_call(optimizer, *call)) return "; explained: " + *summary;
  }
  return any ? "; not explained: the model's last call passes by itself; "
               "insight::explain_overflow() with the whole loss can tell"
             : "; not explained: the model's last call cannot be made again by itself; "
               "insight::explain_overflow() can tell";
}

}  // namespace

std::string explain_skip(OptimizerState& optimizer) {
  try {
    return text_for(optimizer);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return "; not explained: making the model's last call again failed: " +
           what.substr(0, what.find('\n'));
  }
}

}  // namespace mezzo::insight
