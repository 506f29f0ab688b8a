#include "amp/fused_step.h"

#include "amp/optimizer_state.h"

namespace mezzo::detail {

std::shared_ptr<FusedStep> FusedStep::of(torch::optim::Optimizer& optimizer) {
  auto* fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer);
  return fused == nullptr ? nullptr : std::make_shared<FusedStep>(*fused);
}

void FusedStep::attach(const std::shared_ptr<FusedStep>& step) {
  optim::set_step_context(step->optimizer_, step);
}

void FusedStep::detach() {
  optim::set_step_context(optimizer_, nullptr);
}

void FusedStep::step(std::vector<Slot>& slots) {
  lend(slots, /*gradients=*/false);
  optimizer_.step();
  slots_.clear();
}

void FusedStep::step_scaled(std::vector<Slot>& slots, at::Tensor& found_inf,
                            const at::Tensor& inverse,
                            const std::function<void(at::Tensor&)>& agree) {
  lend(slots, /*gradients=*/true);
  optim::step_checked(optimizer_, found_inf, inverse, agree);
  slots_.clear();
}

void FusedStep::lend(std::vector<Slot>& slots, bool gradients) {
  slots_.clear();
  lends_gradients_ = gradients;
  for (Slot& slot : slots) {
    if (slot.has_master()) slots_.emplace(slot.master.unsafeGetTensorImpl(), &slot);
  }
}

optim::LowCopy FusedStep::low_copy(const at::Tensor& parameter) {
  const auto found = slots_.find(parameter.unsafeGetTensorImpl());
  if (found == slots_.end()) return {};
  const Slot& slot = *found->second;
  return {lends_gradients_ ? slot.weight.grad() : at::Tensor(), slot.weight.detach(), std::nullopt};
}

void FusedStep::stepped(bool applied) {
  if (!applied) return;
  for (auto& [master, slot] : slots_) WeightTable::agree(*slot->entry);
}

}  // namespace mezzo::detail
