#include "amp/first_magnitudes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <limits>

#include "mezzo/autocast.h"

namespace mezzo::amp::detail {

void FirstMagnitudes::note(const std::vector<Slot>& slots) {
  if (first_.size() >= slots.size()) return;
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  for (const Slot& slot : slots) {
    const at::Tensor& weight = slot.weight;
    if (first_.contains(weight.unsafeGetTensorImpl())) continue;
    at::Tensor& first = first_[weight.unsafeGetTensorImpl()];
    if (weight.numel() == 0 || weight.layout() != at::kStrided) continue;
    first = at::linalg_vector_norm(weight, std::numeric_limits<double>::infinity());
  }
}

std::optional<double> FirstMagnitudes::of(const at::Tensor& weight) const {
  const auto found = first_.find(weight.unsafeGetTensorImpl());
  if (found == first_.end() || !found->second.defined()) return std::nullopt;
  return found->second.item<double>();
}

}  // namespace mezzo::amp::detail
