// Persistent low-precision copies of weights, one per leaf and kind, each linked to its leaf by one
// autograd node.
//
// A copy is fresh as long as the leaf's version and storage are the ones it was made from and no
// gradient has flowed through it since (an update may have followed that the version counter does
// not show: optim::SGD, fused operators, .data()). A doubtful copy is cast again, into new memory,
// so that graphs which saved the old one stay valid; one whose leaf is known to have changed is
// overwritten, so that such graphs fail as they would without casts.
#pragma once

#include <c10/util/flat_hash_map.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::casting {

/// Which copy of a weight: its low type, stored as such or as float that holds rounded values
/// (emulation).
struct ShadowKind {
  at::ScalarType low;
  bool in_float;
  bool operator==(const ShadowKind&) const = default;
};

class WeightShadows {
 public:
  WeightShadows();
  ~WeightShadows();
  static WeightShadows& global();

  /// The copy to use in place of `tensor`, which may be a weight or a view of one (C++'s nn::Linear
  /// multiplies by weight.t()); with history if gradients are wanted now. Undefined where the
  /// tensor is no weight: the caller casts it itself.
  at::Tensor use(const at::Tensor& tensor, ShadowKind kind);

  void refresh(at::TensorList weights);
  void invalidate(at::TensorList weights);
  void invalidate_all();
  void remember(at::TensorList weights);
  void forget(at::TensorList weights);

  /// A fused step writes this copy itself: the plain copy of that weight if it is in use, else
  /// undefined.
  at::Tensor writable_copy(const at::Tensor& weight, ShadowKind* kind);
  /// ... and says afterwards that it did.
  void mark_written(at::TensorList weights);

  /// Frees the copies of weights that nobody else holds any more.
  void sweep();
  std::size_t size() const;

 private:
  struct Linked;
  struct Copy;
  struct Entry;
  using EntryPtr = std::unique_ptr<Entry>;

  at::Tensor use_leaf(const at::Tensor& leaf, ShadowKind kind, const at::Tensor* view);
  Entry& entry_of(const at::Tensor& leaf);
  Entry* find(const at::Tensor& leaf);
  bool knows(const at::Tensor& tensor);

  mutable std::mutex mutex_;
  ska::flat_hash_map<const c10::TensorImpl*, EntryPtr> entries_;
  int exits_ = 0;
};

}  // namespace mezzo::casting
