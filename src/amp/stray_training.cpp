#include "amp/stray_training.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "amp/module_types.h"
#include "amp/session.h"
#include "core/raise.h"

namespace mezzo::amp::detail {

class StrayTraining::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::shared_ptr<std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  void operator()(const torch::autograd::Variable&) override {
    flag_->store(true, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

void StrayTraining::watch(Session& session, const torch::nn::Module& module) {
  session_ = &session;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& weight = item.value();
    if (!weight.defined() || !weight.requires_grad() || !is_low(weight)) continue;
    const Weight* const known = session.weights().find(weight);
    if (known == nullptr || known->master.defined()) continue;
    if (torch::autograd::impl::post_acc_grad_hooks(weight) != nullptr) continue;
    auto flag = std::make_shared<std::atomic<bool>>(false);
    auto hook = std::make_unique<Hook>(flag);
    watched_.push_back({weight, item.key(), std::move(flag), hook.get(), look(weight)});
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::move(hook));
  }
}

void StrayTraining::stop() noexcept {
  for (const Watched& each : watched_) {
    if (torch::autograd::impl::post_acc_grad_hooks(each.weight).get() == each.hook)
      torch::autograd::impl::set_post_acc_grad_hooks(each.weight, nullptr);
  }
  watched_.clear();
}

StrayTraining::Look StrayTraining::look(const at::Tensor& weight) {
  Look seen{static_cast<std::uint32_t>(weight._version()), {}};
  const std::int64_t count = weight.numel();
  if (!weight.device().is_cpu() || count == 0 || !weight.is_contiguous()) return seen;
  const auto* const bits = static_cast<const std::uint16_t*>(weight.const_data_ptr());
  const std::array<std::int64_t, 3> places{0, count / 2, count - 1};
  for (std::size_t i = 0; i < places.size(); ++i) seen.bits[i] = bits[places[i]];
  return seen;
}

void StrayTraining::note_load() {
  for (Watched& each : watched_) each.seen = look(each.weight);
}

void StrayTraining::note_training_call() {
  if (watched_.empty()) return;
  const Watched* trained = nullptr;
  for (Watched& each : watched_) {
    const Look now = look(each.weight);
    const bool moved = now.version != each.seen.version || now.bits != each.seen.bits;
    const bool has_gradient = each.has_gradient->exchange(false, std::memory_order_relaxed);
    each.seen = now;
    const Weight* const known = session_->weights().find(each.weight);
    const bool has_master = known != nullptr && known->master.defined();
    if (moved && has_gradient && !has_master && trained == nullptr) trained = &each;
  }
  if (trained == nullptr || ++rounds_ < 2) return;
  raise(
      "model", "'", trained->name,
      "' is trained by an optimizer that initialize was not given: its ",
      trained->weight.scalar_type(),
      " values are stepped without a float master, so that small updates are lost, and by "
      "gradients that no scope unscales; give every optimizer that owns weights of the network to "
      "initialize, or freeze what is not to be trained");
}

}  // namespace mezzo::amp::detail
