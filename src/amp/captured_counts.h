// The steps that graphs take, counted where they are taken.
#pragma once

#include <cstdint>

#include "core/torch.h"

namespace mezzo::amp::detail {

/// Counters of one optimizer's captured steps. They lie on its device, each replay moves them, and
/// the host reads them when it is asked.
class CapturedCounts {
 public:
  struct Counts {
    std::int64_t applied = 0;
    std::int64_t skipped = 0;
  };

  /// Before a capture: memory there that no graph owns, since a graph would clear its own.
  void make_room(const at::Device& device);
  bool has_room(const at::Device& device) const {
    return numbers_.defined() && numbers_.device() == device;
  }

  /// In a capture: each replay counts one step, skipped where `found_inf` is not zero. Undefined:
  /// none is skipped.
  void count(const at::Tensor& found_inf);

  /// Waits for the device if a step was ever captured.
  Counts read() const;

 private:
  at::Tensor numbers_;  // int64: steps, and those of them that were applied
  bool any_ = false;
};

}  // namespace mezzo::amp::detail
