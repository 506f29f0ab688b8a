#include "amp/step_witness.h"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "amp/optimizer_slots.h"
#include "amp/param_state.h"
#include "bridge/split_masters.h"

namespace mezzo::amp::detail {
namespace {

/// All witnesses of the process. Its mutex guards what each has seen too: optimizers of several
/// threads may own one parameter.
struct Witnesses {
  std::mutex mutex;
  std::vector<StepWitness*> all;
};

Witnesses& witnesses() {
  static auto* the_witnesses = new Witnesses;
  return *the_witnesses;
}

}  // namespace

StepWitness::StepWitness() {
  const std::lock_guard lock(witnesses().mutex);
  witnesses().all.push_back(this);
}

StepWitness::~StepWitness() {
  const std::lock_guard lock(witnesses().mutex);
  std::erase(witnesses().all, this);
}

StepWitness::Seen StepWitness::see(const at::Tensor& parameter,
                                   torch::optim::Optimizer& optimizer) {
  Seen seen;
  seen.value.parameter = parameter.unsafeGetTensorImpl();
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found != optimizer.state().end()) {
    seen.state = found->second.get();
    visit_tensors(*found->second, [&](at::Tensor& tensor) {
      if (!tensor.is_inference()) seen.updates += tensor._version();
    });
  }
  if (!parameter.has_storage() || parameter.is_inference()) return seen;
  seen.value.storage = parameter.storage().unsafeGetStorageImpl();
  seen.value.version = parameter._version();
  const bool readable = parameter.device().is_cpu() && parameter.scalar_type() == at::kFloat &&
                        parameter.numel() > 0 && bridge::has_memory(parameter);
  if (readable) seen.value.first = *parameter.const_data_ptr<float>();
  return seen;
}

bool StepWitness::is_step(const Seen& before, const Seen& now) {
  if (now.value.parameter != before.value.parameter) return false;
  // State that was loaded is new, and nothing was done with it yet.
  if (now.state == before.state && now.updates > before.updates) return true;
  if (before.state == nullptr && now.updates > 0) return true;
  const bool unwritten =
      now.value.storage == before.value.storage && now.value.version == before.value.version;
  const bool both_nan = std::isnan(now.value.first) && std::isnan(before.value.first);
  return unwritten && now.value.first != before.value.first && !both_nan;
}

void StepWitness::take(const Value& value) {
  const auto found = places_.find(value.parameter);
  if (found != places_.end()) seen_[found->second].value = value;
}

void StepWitness::look(const std::vector<Slot>& slots, torch::optim::Optimizer& optimizer) {
  const std::lock_guard lock(witnesses().mutex);
  bool same = seen_.size() == slots.size();
  seen_.resize(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Seen now = see(slots[i].master, optimizer);
    same = same && seen_[i].value.parameter == now.value.parameter;
    seen_[i] = now;
  }
  if (!same) {
    places_.clear();
    for (std::size_t i = 0; i < seen_.size(); ++i) places_[seen_[i].value.parameter] = i;
  }
  for (StepWitness* const other : witnesses().all) {
    if (other == this) continue;
    for (const Seen& seen : seen_) other->take(seen.value);
  }
}

bool StepWitness::saw_step(const std::vector<Slot>& slots,
                           torch::optim::Optimizer& optimizer) const {
  const std::lock_guard lock(witnesses().mutex);
  for (std::size_t i = 0; i < slots.size() && i < seen_.size(); ++i) {
    if (!slots[i].has_master() && is_step(seen_[i], see(slots[i].master, optimizer))) return true;
  }
  return false;
}

bool StepWitness::saw_master_step(const std::vector<Slot>& slots,
                                  torch::optim::Optimizer& optimizer) const {
  if (slots.empty() || seen_.size() != slots.size()) return false;
  const auto saw = [&](std::size_t i) {
    const Slot& slot = slots[i];
    if (!slot.has_master() || slot.master.device().is_cpu()) return false;
    const std::lock_guard lock(witnesses().mutex);
    return is_step(seen_[i], see(slot.master, optimizer));
  };
  return saw(0) || saw(slots.size() - 1);
}

}  // namespace mezzo::amp::detail
