// The persistent low-precision copies of weights, one per weight and kind, each linked to its
// weight by one autograd node.
//
// A copy is fresh as long as the weight's version, memory and layout are the ones it was made from
// and no gradient has flowed through it since (an update may have followed that the version counter
// does not show: optim::SGD, fused operators, .data()). A doubtful copy is cast again, into new
// memory, so that graphs which saved the old one stay valid; one whose weight is known to have
// changed is overwritten, so that such graphs fail as they would without casts.
//
// An amp::Optimizer reports each update and so keeps the copies fresh from scope to scope. Copies
// of other weights that are trained, as a gradient or a recorded graph shows, last until the
// outermost scope ends, as in LibTorch's own autocast.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "casting/cast_loans.h"
#include "casting/generations.h"
#include "casting/shadow.h"
#include "casting/weight_entry.h"
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
  /// tensor is no weight: the caller casts it itself. The result goes into `cache`, the calling
  /// thread's, unless that is null.
  at::Tensor use(const at::Tensor& tensor, ShadowKind kind, ShadowCache* cache);

  void refresh(at::TensorList weights);
  /// See CastLoans.
  std::optional<CastLoan> lend(const at::Tensor& weight);
  void take_back(std::span<const CastLoan> loans);
  void leave(at::TensorList weights);
  void invalidate(at::TensorList weights);
  void drop_all();
  void remember(at::TensorList weights);
  void forget(at::TensorList weights);

  /// Frees the copies of weights that nobody else holds any more, and doubts those of weights that
  /// others train.
  void end_outermost_scope();
  std::size_t size() const;

 private:
  using EntryPtr = std::unique_ptr<WeightEntry>;
  /// Entries to free after the lock: the last tensors of a graph may go with them.
  using Dropped = std::vector<EntryPtr>;
  struct Name {
    const c10::TensorImpl* weight;
    std::uint64_t number;  // of the entry
  };

  at::Tensor use_weight(const at::Tensor& weight, ShadowKind kind, const at::Tensor* view,
                        ShadowCache* cache);
  WeightEntry* find(const c10::TensorImpl* weight);
  WeightEntry* find(const at::Tensor& weight);
  WeightEntry& add(const at::Tensor& weight);
  WeightEntry& entry_of(const at::Tensor& weight, Dropped& dropped);
  bool knows(const at::Tensor& tensor);
  void drop_gone(Dropped& dropped);
  void doubt_others_updates(WeightEntry& entry, const at::Tensor& weight);

  mutable std::mutex mutex_;
  ska::flat_hash_map<const c10::TensorImpl*, EntryPtr> entries_;
  std::uint64_t entries_made_ = 0;
  Generations<Name> ages_;
  std::vector<Name> in_use_;  // whose copies others may make stale when the scope has ended
};

}  // namespace mezzo::casting
