#include "amp/step_witness.h"

#include <torch/optim/optimizer.h>

#include <cmath>

#include "amp/optimizer_state.h"
#include "amp/param_state.h"

namespace mezzo::detail {

StepWitness::Seen StepWitness::see(const at::Tensor& parameter,
                                   torch::optim::Optimizer& optimizer) {
  Seen seen;
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found != optimizer.state().end()) {
    seen.state = found->second.get();
    visit_tensors(*found->second, [&](at::Tensor& tensor) {
      if (!tensor.is_inference()) seen.updates += tensor._version();
    });
  }
  if (!parameter.has_storage() || parameter.is_inference()) return seen;
  seen.storage = parameter.storage().unsafeGetStorageImpl();
  seen.version = parameter._version();
  const bool readable =
      parameter.device().is_cpu() && parameter.scalar_type() == at::kFloat && parameter.numel() > 0;
  if (readable) seen.first = *parameter.const_data_ptr<float>();
  return seen;
}

bool StepWitness::is_step(const Seen& before, const Seen& now) {
  // State that was loaded is new, and nothing was done with it yet.
  if (now.state == before.state && now.updates > before.updates) return true;
  if (before.state == nullptr && now.updates > 0) return true;
  const bool unwritten = now.storage == before.storage && now.version == before.version;
  const bool both_nan = std::isnan(now.first) && std::isnan(before.first);
  return unwritten && now.first != before.first && !both_nan;
}

void StepWitness::look(const std::vector<Slot>& slots, torch::optim::Optimizer& optimizer) {
  seen_.clear();
  for (const Slot& slot : slots) seen_.push_back(see(slot.master, optimizer));
}

bool StepWitness::saw_step(const std::vector<Slot>& slots,
                           torch::optim::Optimizer& optimizer) const {
  for (std::size_t i = 0; i < slots.size() && i < seen_.size(); ++i) {
    if (!slots[i].has_master() && is_step(seen_[i], see(slots[i].master, optimizer))) return true;
  }
  return false;
}

}  // namespace mezzo::detail
