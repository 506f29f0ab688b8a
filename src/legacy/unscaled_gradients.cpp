#include "legacy/unscaled_gradients.h"

#include <algorithm>

namespace mezzo::fp16_utils {

using mezzo::amp::detail::Slot;

void UnscaledGradients::note(const Slots& slots) {
  noted_.clear();
  for (const Slot& slot : slots) {
    const at::Tensor& grad = slot.master.grad();
    if (!grad.defined()) continue;
    noted_.emplace(grad.unsafeGetTensorImpl(),
                   Noted{Weak(grad.getIntrusivePtr()), grad._version()});
  }
}

bool UnscaledGradients::any_left(const Slots& slots) const {
  return std::ranges::any_of(slots, [this](const Slot& slot) {
    return noted_.contains(slot.master.grad().unsafeGetTensorImpl());
  });
}

bool UnscaledGradients::any_new(const Slots& slots) const {
  return std::ranges::any_of(slots, [this](const Slot& slot) {
    const at::Tensor& grad = slot.weight.grad();
    if (slot.has_master() || !grad.defined()) return false;
    const auto found = noted_.find(grad.unsafeGetTensorImpl());
    return found == noted_.end() || found->second.version != grad._version();
  });
}

}  // namespace mezzo::fp16_utils
