// Which gradients are unscaled, where backward passes run that nobody announces.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "amp/optimizer_slots.h"

namespace mezzo::fp16_utils {

/// The gradients of masters and float weights at one moment, to see later whether they were
/// cleared, and whether a backward pass has left others.
class UnscaledGradients {
 public:
  using Slots = std::vector<mezzo::amp::detail::Slot>;

  /// All that is there now. Keeps no memory of theirs alive.
  void note(const Slots& slots);

  /// Is one of those still there, whatever was written to it?
  bool any_left(const Slots& slots) const;

  /// Does a weight without master have another one, or one that was written since?
  bool any_new(const Slots& slots) const;

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Noted {
    Weak gradient;  // while it is held, no other tensor has this address
    std::int64_t version;
  };
  std::unordered_map<const c10::TensorImpl*, Noted> noted_;
};

}  // namespace mezzo::fp16_utils
