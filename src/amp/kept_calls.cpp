// The last call of a network while skipped steps are to be explained.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "amp/last_call.h"
#include "amp/model_state.h"
#include "amp/optimizer_step.h"
#include "amp/skip_explainer.h"

namespace mezzo::amp::detail {

bool ModelState::keeps_calls() const {
  return trial_ == nullptr && session_.explains_skips() && module_->is_training() &&
         at::GradMode::is_enabled();
}

void ModelState::keep_call(std::function<std::vector<at::Tensor>()> again,
                           const std::vector<at::Tensor>& results) {
  auto last = std::make_shared<LastCall>();
  last->again = std::move(again);
  last->gradients.resize(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& result = results[i];
    if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
    result.register_hook([last, i](const at::Tensor& gradient) { last->gradients[i] = gradient; });
  }
  const std::lock_guard lock(last_call_mutex_);
  last_call_ = std::move(last);
}

std::shared_ptr<const LastCall> ModelState::last_call() const {
  const std::lock_guard lock(last_call_mutex_);
  return last_call_;
}

void ModelState::forget_call() {
  const std::lock_guard lock(last_call_mutex_);
  last_call_.reset();
}

void Session::note_explained() {
  if (skips_to_explain_ > 0 && --skips_to_explain_ > 0) return;
  for (const auto& model : models_) model->forget_call();
}

std::string OptimizerStep::explanation(bool at_once) {
  if (!session_.explains_skips()) return {};
  std::string text = "; not explained: this program is linked without mezzo's insight";
  if (!at_once) {
    text =
        "; not explained: the device decided this step after the host had gone on; "
        "insight::explain_overflow() right after such a step can tell";
  } else if (const SkipExplainer explain = skip_explainer()) {
    text = explain(owner_);
  }
  session_.note_explained();
  return text;
}

bool keeps_calls(const ModelState& state) {
  return state.keeps_calls();
}

void keep_call(ModelState& state, std::function<std::vector<at::Tensor>()> again,
               const std::vector<at::Tensor>& results) {
  state.keep_call(std::move(again), results);
}

}  // namespace mezzo::amp::detail
