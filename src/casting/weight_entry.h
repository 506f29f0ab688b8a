// The registry's knowledge of one weight.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "casting/shadow.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Where a weight's elements lie.
struct WeightMemory {
  explicit WeightMemory(const at::Tensor& weight);
  bool is_of(const at::Tensor& weight) const;

  // Held, so that another storage cannot take its address.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  at::ScalarType dtype;
  std::int64_t offset;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
};

/// The registry's, under its mutex. Its weak reference keeps the memory of the weight from being
/// used again, so that an address names one weight only.
struct WeightEntry {
  WeightEntry(const at::Tensor& tensor, std::uint64_t unique_number);
  ~WeightEntry() { retire(); }
  WeightEntry(const WeightEntry&) = delete;
  WeightEntry& operator=(const WeightEntry&) = delete;

  void retire();
  /// With other memory the weight may have another accumulator too, so nothing is kept.
  void follow_memory(const at::Tensor& tensor);
  const std::shared_ptr<Shadow>& shadow_of(ShadowKind kind);
  std::vector<std::shared_ptr<Shadow>> take_shadows();
  /// Is the weight gone, but for what the entry itself holds of it?
  bool is_gone() const;

  /// Is there a sign that somebody trains the weight: a gradient, or a graph that is not ours
  /// alone? Once so, always so.
  bool is_trained(const at::Tensor& tensor);

  /// Somebody reports each update, this one too: copies are kept from now on. If it is captured,
  /// replays will make it and report nothing: copies are invalid now, and never kept again.
  void updates_are_reported(const QueuePlace& here);
  void invalidate();

  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;
  std::uint64_t number;  // no other entry's
  WeightMemory memory;
  std::vector<std::shared_ptr<Shadow>> shadows;
  bool kept_fresh = false;      // an optimizer of ours reports each of its updates
  bool moved_by_graph = false;  // an update was captured: nobody sees its replays
  bool in_use = false;          // since an outermost scope ended last

 private:
  bool trained_ = false;
};

}  // namespace mezzo::casting
