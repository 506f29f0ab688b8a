#include "amp/snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <mutex>

#include "amp/generators.h"
#include "scaling/to_device.h"

namespace mezzo::detail {
void Snapshot::watch(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const bool known = std::ranges::any_of(
        watched_, [&](const at::Tensor& other) { return other.is_same(tensor); });
    if (known) continue;
    watched_.push_back(tensor);
    copies_.push_back(tensor.detach().clone());
  }
}

void Snapshot::take() {
  if (taken_) return;
  const at::NoGradGuard no_grad;
  if (!watched_.empty()) {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (copies_[i].device() != watched_[i].device() ||
          copies_[i].scalar_type() != watched_[i].scalar_type()) {
        copies_[i] = watched_[i].detach().clone();
      }
    }
    at::_foreach_copy_(copies_, watched_);
  }
  generator_states_.clear();
  if (with_generators_) {
    std::vector<at::Generator> generators = default_generators();
    for (at::Generator& generator : generators) {
      const std::lock_guard lock(generator.mutex());
      generator_states_.push_back(generator.get_state());
    }
  }
  taken_ = true;
}

void Snapshot::give_back() {
  if (!taken_) return;
  const at::NoGradGuard no_grad;
  if (!watched_.empty()) at::_foreach_copy_(watched_, copies_);
  if (!with_generators_) return;
  std::vector<at::Generator> generators = default_generators();
  for (std::size_t i = 0; i < generator_states_.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(generator_states_[i]);
  }
}

void Snapshot::remember(const std::vector<at::Tensor>& copies) {
  if (copies.size() != watched_.size()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].sizes() != watched_[i].sizes()) return;
    copies_[i] =
        copies[i].to(watched_[i].device(), watched_[i].scalar_type(), false, /*copy=*/true);
  }
  taken_ = true;
}

void Snapshot::give_back_if(const at::Tensor& flag) {
  if (!taken_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const at::Tensor up = scaling::to_device(flag, watched_[i].device()).ne(0);
    watched_[i].copy_(at::where(up, copies_[i], watched_[i]));
  }
}

}  // namespace mezzo::detail
