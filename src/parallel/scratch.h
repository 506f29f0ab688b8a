// Memory that is needed for a moment and again at the next step: fresh pages from the system would
// cost more than what is computed in them.
#pragma once

#include "core/torch.h"

namespace mezzo::parallel {

/// Uninitialised memory, borrowed from those who gave theirs back. Safe from several threads.
class Scratch {
 public:
  Scratch() = default;
  Scratch(at::IntArrayRef sizes, const at::TensorOptions& options);
  ~Scratch() { give_back(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const at::Tensor& tensor() const noexcept { return tensor_; }
  /// The tensor must not be used any more.
  void give_back();

 private:
  at::Tensor memory_;  // bytes; undefined on devices whose allocator keeps memory itself
  at::Tensor tensor_;
};

/// Returns to the system what nobody borrows.
void release_scratch();

}  // namespace mezzo::parallel
