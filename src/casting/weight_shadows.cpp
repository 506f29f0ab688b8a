#include "casting/weight_shadows.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/to.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "casting/counts.h"
#include "casting/rounding.h"
#include "casting/shadow_cache.h"
#include "casting/weights.h"

namespace mezzo::casting {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// Where a weight's elements lie.
struct Memory {
  explicit Memory(const at::Tensor& tensor)
      : storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            tensor.storage().unsafeGetStorageImpl())),
        dtype(tensor.scalar_type()),
        offset(tensor.storage_offset()),
        sizes(tensor.sizes()),
        strides(tensor.strides()) {}

  bool is_of(const at::Tensor& tensor) const {
    return storage._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
           dtype == tensor.scalar_type() && offset == tensor.storage_offset() &&
           tensor.sizes().equals(sizes) && tensor.strides().equals(strides);
  }

  WeakStorage storage;  // held, so that another storage cannot take its address
  at::ScalarType dtype;
  std::int64_t offset;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
};

/// Is the tensor, the weight or a view of it, more than elements of the weight? It may have memory,
/// a sign, or a derivative of its own.
bool is_its_own(const at::Tensor& tensor, const at::Tensor& weight) {
  return tensor.is_neg() || tensor.is_conj() || tensor._fw_grad(/*level=*/0).defined() ||
         tensor.storage().unsafeGetStorageImpl() != weight.storage().unsafeGetStorageImpl() ||
         (tensor.requires_grad() && !weight.requires_grad());
}

}  // namespace

struct WeightShadows::Entry {
  explicit Entry(const at::Tensor& tensor) : weight(tensor.getIntrusivePtr()), memory(tensor) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() { retire(); }

  WeakTensor weight;
  Memory memory;
  std::vector<std::shared_ptr<Shadow>> shadows;

  void retire() {
    for (const auto& shadow : shadows) shadow->retire();
    shadows.clear();
  }

  // With other memory the weight may have another accumulator too, so nothing is kept.
  void follow_memory(const at::Tensor& tensor) {
    if (memory.is_of(tensor)) return;
    retire();
    memory = Memory(tensor);
  }

  const std::shared_ptr<Shadow>& shadow_of(ShadowKind kind) {
    for (const auto& shadow : shadows) {
      if (shadow->kind() == kind) return shadow;
    }
    return shadows.emplace_back(std::make_shared<Shadow>(kind));
  }

  bool nobody_else_holds_weight() const {
    const std::size_t owners = weight.use_count();
    if (owners == 0) return true;
    if (owners > 1) return false;
    for (const auto& shadow : shadows) {
      if (shadow->holds_weight()) return true;
    }
    return false;
  }
};

WeightShadows& WeightShadows::global() {
  // Never destroyed: tensors may still be cast while other static objects are.
  static auto* shadows = new WeightShadows;
  return *shadows;
}

WeightShadows::WeightShadows() = default;
WeightShadows::~WeightShadows() = default;

// An entry's weak reference keeps the memory of its weight from being used again, so that an
// address names one weight only.
WeightShadows::Entry* WeightShadows::find(const at::Tensor& weight) {
  const auto found = entries_.find(weight.unsafeGetTensorImpl());
  return found == entries_.end() ? nullptr : found->second.get();
}

WeightShadows::Entry& WeightShadows::entry_of(const at::Tensor& weight) {
  if (Entry* entry = find(weight)) return *entry;
  return *(entries_[weight.unsafeGetTensorImpl()] = std::make_unique<Entry>(weight));
}

bool WeightShadows::knows(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  return find(tensor) != nullptr;
}

at::Tensor WeightShadows::use(const at::Tensor& tensor, ShadowKind kind, ShadowCache* cache) {
  if (tensor.is_inference() || !tensor.has_storage()) return {};
  // Views before leaves: one that was made without a graph claims to be a leaf that wants a
  // gradient.
  if (tensor.is_view()) {
    const at::Tensor base(tensor._base());
    const bool leaf =
        base.is_leaf() && !base.is_inference() && base.scalar_type() == tensor.scalar_type();
    if (leaf && (base.requires_grad() || knows(base)))
      return use_weight(base, kind, &tensor, cache);
  }
  if (!tensor.is_leaf()) return {};
  return tensor.requires_grad() || knows(tensor) ? use_weight(tensor, kind, nullptr, cache)
                                                 : at::Tensor();
}

at::Tensor WeightShadows::use_weight(const at::Tensor& weight, ShadowKind kind,
                                     const at::Tensor* view, ShadowCache* cache) {
  if (!weight.has_storage() || !weight.is_non_overlapping_and_dense()) return {};
  if (is_its_own(view == nullptr ? weight : *view, weight)) return {};
  const bool with_history = weight.requires_grad() && at::GradMode::is_enabled();
  // A view made without a graph, used with one: its gradient must not reach the weight.
  if (view != nullptr && with_history && view->is_leaf()) return {};
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(weight);
  entry.follow_memory(weight);
  const std::shared_ptr<Shadow>& shadow = entry.shadow_of(kind);
  if (!shadow->fresh(weight)) shadow->cast_again(weight);
  if (cache != nullptr) cache->put(weight, shadow->gate());
  return shadow->use(weight, view, with_history);
}

void WeightShadows::refresh(at::TensorList weights) {
  const Unrecorded guard;
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Shadow*, const at::Tensor*>> filled;
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> values;
  for (const at::Tensor& weight : weights) {
    Entry* const entry = weight.defined() ? find(weight) : nullptr;
    if (!entry) continue;
    entry->follow_memory(weight);
    for (const auto& shadow : entry->shadows) {
      if (!shadow->begin_refill()) continue;
      filled.emplace_back(shadow.get(), &weight);
      copies.push_back(shadow->base());
      values.push_back(shadow->kind().in_float ? rounded(weight, shadow->kind().low)
                                               : weight.detach());
    }
  }
  if (copies.empty()) return;
  at::_foreach_copy_(copies, values);
  for (const auto& [shadow, weight] : filled) shadow->end_refill(*weight);
  count_weight_casts(static_cast<std::int64_t>(copies.size()));
}

std::optional<CastLoan> WeightShadows::lend(const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(weight);
  if (!entry) return std::nullopt;
  entry->follow_memory(weight);
  std::shared_ptr<Shadow> used;
  for (const auto& shadow : entry->shadows) {
    if (!shadow->was_used()) continue;
    if (used) return std::nullopt;
    used = shadow;
  }
  if (!used || !used->can_be_written_with(weight)) return std::nullopt;
  for (const auto& shadow : entry->shadows) shadow->begin_refill();
  const ShadowKind kind = used->kind();
  at::Tensor copy = used->base();
  return CastLoan{std::move(used), weight, weight.storage().unsafeGetStorageImpl(), std::move(copy),
                  kind.in_float ? std::optional(kind.low) : std::nullopt};
}

void WeightShadows::take_back(std::span<const CastLoan> loans) {
  const std::lock_guard lock(mutex_);
  for (const CastLoan& loan : loans) {
    // Who used or invalidated the copy meanwhile, or moved the weight, made the loan void.
    if (!loan.shadow->is_refilling(loan.copy)) continue;
    if (loan.weight.storage().unsafeGetStorageImpl() == loan.storage) {
      loan.shadow->end_refill(loan.weight);
    }
  }
}

void WeightShadows::invalidate(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    Entry* const entry = weight.defined() ? find(weight) : nullptr;
    if (!entry) continue;
    for (const auto& shadow : entry->shadows) shadow->invalidate();
  }
}

void WeightShadows::invalidate_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [weight, entry] : entries_) {
    for (const auto& shadow : entry->shadows) shadow->invalidate();
  }
}

void WeightShadows::remember(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    if (weight.defined() && weight.has_storage() && !weight.is_inference()) entry_of(weight);
  }
}

void WeightShadows::forget(at::TensorList weights) {
  std::vector<EntryPtr> dropped;  // freed after the lock: their last tensors may go with them
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    const auto found =
        weight.defined() ? entries_.find(weight.unsafeGetTensorImpl()) : entries_.end();
    if (found == entries_.end()) continue;
    dropped.push_back(std::move(found->second));
    entries_.erase(found);
  }
}

void WeightShadows::sweep() {
  std::vector<EntryPtr> dropped;
  const std::lock_guard lock(mutex_);
  // Rarely for many weights, so that a scope around one small operator does not pay for a large
  // model.
  if (entries_.empty() || static_cast<std::size_t>(++exits_) * 8 < entries_.size()) return;
  exits_ = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second->nobody_else_holds_weight()) {
      dropped.push_back(std::move(it->second));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

std::size_t WeightShadows::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

namespace {

thread_local bool keeps_weights = true;

}  // namespace

WeightKeeping::WeightKeeping(bool keeps) noexcept : before_(keeps_weights) {
  keeps_weights = keeps;
}

WeightKeeping::~WeightKeeping() {
  keeps_weights = before_;
}

bool WeightKeeping::here() noexcept {
  return keeps_weights;
}

void refresh_casts(at::TensorList weights) {
  WeightShadows::global().refresh(weights);
}
void invalidate_casts(at::TensorList weights) {
  WeightShadows::global().invalidate(weights);
}
void invalidate_all_casts() {
  WeightShadows::global().invalidate_all();
}
void remember_weights(at::TensorList weights) {
  WeightShadows::global().remember(weights);
}
void forget_weights(at::TensorList weights) {
  WeightShadows::global().forget(weights);
}

}  // namespace mezzo::casting
