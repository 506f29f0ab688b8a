#include "amp/stray_training.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/session.h"
#include "core/raise.h"

namespace mezzo::amp::detail {

class StrayTraining::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(const Session& session, std::shared_ptr<std::atomic<bool>> flag)
      : session_(session), flag_(std::move(flag)) {}
  void operator()(const torch::autograd::Variable& weight) override {
    if (is_low(weight) || is_scaled()) flag_->store(true, std::memory_order_relaxed);
  }

 private:
  bool is_scaled() const {
    return std::ranges::any_of(session_.optimizers(),
                               [](const auto& optimizer) { return optimizer->scope().is_open(); });
  }

  const Session& session_;
  std::shared_ptr<std::atomic<bool>> flag_;
};

void StrayTraining::watch(Session& session, const torch::nn::Module& module) {
  session_ = &session;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& weight = item.value();
    if (!weight.defined() || !weight.requires_grad() || !is_stray(weight)) continue;
    if (torch::autograd::impl::post_acc_grad_hooks(weight) != nullptr) continue;
    auto flag = std::make_shared<std::atomic<bool>>(false);
    auto hook = std::make_unique<Hook>(session, flag);
    watched_.push_back({weight, item.key(), std::move(flag), hook.get(), look(weight)});
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::move(hook));
  }
}

/// Low without a master, or float with gradients that only a scope of its optimizer would unscale.
bool StrayTraining::is_stray(const at::Tensor& weight) const {
  if (is_low(weight)) {
    const Weight* const known = session_->weights().find(weight);
    return session_->plan().masters && known != nullptr && !known->master.defined();
  }
  return session_->scales_losses() && !session_->is_stepped(weight);
}

void StrayTraining::stop() noexcept {
  for (const Watched& each : watched_) {
    if (torch::autograd::impl::post_acc_grad_hooks(each.weight).get() == each.hook)
      torch::autograd::impl::set_post_acc_grad_hooks(each.weight, nullptr);
  }
  watched_.clear();
}

StrayTraining::Look StrayTraining::look(const at::Tensor& weight) {
  return {static_cast<std::uint32_t>(weight._version()), samples_of(weight)};
}

void StrayTraining::note_load() {
  for (Watched& each : watched_) each.seen = look(each.weight);
}

void StrayTraining::note_training_call() {
  if (watched_.empty()) return;
  const Watched* trained = nullptr;
  for (Watched& each : watched_) {
    const Look now = look(each.weight);
    const bool moved = now.version != each.seen.version || now.samples != each.seen.samples;
    const bool has_gradient = each.has_gradient->exchange(false, std::memory_order_relaxed);
    each.seen = now;
    if (moved && has_gradient && trained == nullptr && is_stray(each.weight)) trained = &each;
  }
  if (trained != nullptr && ++rounds_ >= 2) tell(*trained);
}

void StrayTraining::tell(const Watched& trained) const {
  constexpr const char* kWayOut =
      "give every optimizer that owns weights of the network to initialize, or freeze what is not "
      "to be trained";
  if (!is_low(trained.weight)) {
    session_->say_once("stray training",
                       "mezzo: '" + trained.name +
                           "' is trained by an optimizer that initialize was not given, by "
                           "gradients that carry the loss scale, which nothing divides away; " +
                           kWayOut);
    return;
  }
  raise("model", "'", trained.name,
        "' is trained by an optimizer that initialize was not given: its ",
        trained.weight.scalar_type(),
        " values are stepped without a float master, so that small updates are lost, and by "
        "gradients that no scope unscales; ",
        kWayOut);
}

}  // namespace mezzo::amp::detail
