#include "amp/shown_gradients.h"

#include <utility>

#include "amp/gradients.h"
#include "amp/optimizer_state.h"
#include "parallel/agreement.h"

namespace mezzo::amp::detail {

void ShownGradients::begin(const Optimizers& optimizers) {
  begun_ = true;
  hidden_ = 1;
  show(optimizers);
}

void ShownGradients::Shown::take_back() {
  at::Tensor& own = weight->tensor.mutable_grad();
  at::Tensor& masters = weight->master.mutable_grad();
  if (own.defined() && !own.is_same(gradient)) {
    // A reducer's view, which a plain backward() brought: the step says that it was missed.
    if (is_in_bucket(weight->tensor)) return;
    masters = own.to(weight->master.scalar_type());
  } else if (!own.defined() && masters.is_same(gradient)) {
    masters.reset();
  }
  // The reducer may have other buckets by now.
  if (bucket.defined() && parallel::is_bucket_view(bucket)) {
    own = bucket;
  } else {
    own.reset();
  }
}

void ShownGradients::hide() {
  if (!begun_ || hidden_++ > 0) return;
  for (Shown& each : shown_) each.take_back();
  shown_.clear();
}

void ShownGradients::show(const Optimizers& optimizers) {
  if (!begun_ || --hidden_ > 0) return;
  for (const auto& optimizer : optimizers) {
    // Gradients that are still scaled stay with the weights.
    if (optimizer->scope().still_scaled()) continue;
    for (Slot& slot : optimizer->slots().all()) {
      const at::Tensor& gradient = slot.master.grad();
      if (!slot.has_master() || !gradient.defined()) continue;
      at::Tensor& own = slot.weight.mutable_grad();
      at::Tensor bucket;
      if (own.defined()) {
        if (own.is_same(gradient)) continue;
        const bool is_idle = is_in_bucket(slot.weight) && slot.cleared.is_still(own);
        if (!is_idle) continue;
        bucket = own;
      }
      shown_.push_back({slot.entry, gradient, std::move(bucket)});
      own = gradient;
    }
  }
}

HiddenGradients::HiddenGradients(Session& session) : session_(session) {
  session_.shown_gradients().hide();
}

HiddenGradients::~HiddenGradients() {
  session_.shown_gradients().show(session_.optimizers());
}

}  // namespace mezzo::amp::detail
