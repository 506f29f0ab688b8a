// How large weights were before an optimizer first moved them.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "amp/optimizer_slots.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// For explanations: a weight that is large now may have been made so, or have grown. The numbers
/// stay on their devices.
class FirstMagnitudes {
 public:
  /// Before a step: the largest magnitudes of weights that are new since the last one.
  void note(const std::vector<Slot>& slots);
  /// Weights were loaded: they are as new.
  void forget() noexcept { first_.clear(); }

  /// Waits for the device; nothing for a weight that no step has seen.
  std::optional<double> of(const at::Tensor& weight) const;

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> first_;
};

}  // namespace mezzo::amp::detail
