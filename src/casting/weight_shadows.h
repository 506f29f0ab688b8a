// The persistent low-precision copies of weights, one per weight and kind, each linked to its
// weight by one autograd node.
//
// A copy is fresh as long as the weight's version, memory and layout are the ones it was made from
// and no gradient has flowed through it since (an update may have followed that the version counter
// does not show: optim::SGD, fused operators, .data()). A doubtful copy is cast again, into new
// memory, so that graphs which saved the old one stay valid; one whose weight is known to have
// changed is overwritten, so that such graphs fail as they would without casts.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "casting/cast_loans.h"
#include "casting/shadow.h"
#include "core/torch.h"

namespace mezzo::casting {

class ShadowCache;

class WeightShadows {
 public:
  WeightShadows();
  ~WeightShadows();
  static WeightShadows& global();

  /// The copy to use in place of `tensor`, which may be a weight or a view of one (C++'s nn::Linear
  /// multiplies by weight.t()); with history if gradients are wanted now. Undefined where the
  /// tensor is no weight: the caller casts it itself. What was found goes into `cache`, the calling
  /// thread's, unless that is null.
  at::Tensor use(const at::Tensor& tensor, ShadowKind kind, ShadowCache* cache);

  void refresh(at::TensorList weights);
  /// See CastLoans.
  std::optional<CastLoan> lend(const at::Tensor& weight);
  void take_back(std::span<const CastLoan> loans);
  void invalidate(at::TensorList weights);
  void invalidate_all();
  void remember(at::TensorList weights);
  void forget(at::TensorList weights);

  /// Frees the copies of weights that nobody else holds any more.
  void sweep();
  std::size_t size() const;

 private:
  struct Entry;
  using EntryPtr = std::unique_ptr<Entry>;

  at::Tensor use_weight(const at::Tensor& weight, ShadowKind kind, const at::Tensor* view,
                        ShadowCache* cache);
  Entry& entry_of(const at::Tensor& weight);
  Entry* find(const at::Tensor& weight);
  bool knows(const at::Tensor& tensor);

  mutable std::mutex mutex_;
  ska::flat_hash_map<const c10::TensorImpl*, EntryPtr> entries_;
  int exits_ = 0;
};

}  // namespace mezzo::casting
