#include "casting/weight_shadows.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/to.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "casting/counts.h"
#include "casting/shadow_cache.h"
#include "casting/weights.h"

namespace mezzo::casting {
namespace {

/// Is the tensor, the weight or a view of it, more than elements of the weight? It may have memory,
/// a sign, or a derivative of its own.
bool is_its_own(const at::Tensor& tensor, const at::Tensor& weight) {
  return tensor.is_neg() || tensor.is_conj() || tensor._fw_grad(/*level=*/0).defined() ||
         tensor.storage().unsafeGetStorageImpl() != weight.storage().unsafeGetStorageImpl() ||
         (tensor.requires_grad() && !weight.requires_grad());
}

}  // namespace

WeightShadows& WeightShadows::global() {
  // Never destroyed: tensors may still be cast while other static objects are.
  static auto* shadows = new WeightShadows;
  return *shadows;
}

WeightShadows::WeightShadows() = default;
WeightShadows::~WeightShadows() = default;

WeightEntry* WeightShadows::find(const c10::TensorImpl* weight) {
  const auto found = entries_.find(weight);
  return found == entries_.end() ? nullptr : found->second.get();
}

WeightEntry* WeightShadows::find(const at::Tensor& weight) {
  return weight.defined() ? find(weight.unsafeGetTensorImpl()) : nullptr;
}

WeightEntry& WeightShadows::add(const at::Tensor& weight) {
  const c10::TensorImpl* const address = weight.unsafeGetTensorImpl();
  return *(entries_[address] = std::make_unique<WeightEntry>(weight, ++entries_made_));
}

// Any float leaf that wants a gradient may be a weight, inputs too. These come and go, within one
// scope as well, so that time passes with each that comes.
WeightEntry& WeightShadows::entry_of(const at::Tensor& weight, Dropped& dropped) {
  if (WeightEntry* entry = find(weight)) return *entry;
  drop_gone(dropped);
  WeightEntry& entry = add(weight);
  ages_.add_young({weight.unsafeGetTensorImpl(), entry.number});
  return entry;
}

void WeightShadows::drop_gone(Dropped& dropped) {
  ages_.pass([&](const Name& name) {
    const auto found = entries_.find(name.weight);
    if (found == entries_.end() || found->second->number != name.number) return true;
    if (!found->second->is_gone()) return false;
    dropped.push_back(std::move(found->second));
    entries_.erase(found);
    return true;
  });
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
  const QueuePlace here = QueuePlace::of(weight.device());
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  WeightEntry& entry = entry_of(weight, dropped);
  entry.follow_memory(weight);
  doubt_others_updates(entry, weight);
  const std::shared_ptr<Shadow>& shadow = entry.shadow_of(kind);
  if (shadow->fresh(weight, here)) {
    shadow->resume(weight);
  } else {
    shadow->cast_again(weight, here);
  }
  // Streams are looked at in each use.
  if (cache != nullptr && !here.has_streams()) cache->put(weight, shadow->gate());
  at::Tensor copy = shadow->use(weight, view, with_history, here);
  const bool before_update = LastingScope::here() && !entry.kept_fresh &&
                             !at::GradMode::is_enabled() && weight.grad().defined();
  if (before_update) shadow->doubt();
  return copy;
}

// LibTorch's own optim::SGD and others move a weight without a trace. So a copy that nobody keeps
// fresh lasts for one outermost scope if there is a sign that the weight is trained.
void WeightShadows::doubt_others_updates(WeightEntry& entry, const at::Tensor& weight) {
  if (entry.kept_fresh || entry.in_use) return;
  if (!weight.requires_grad() && !entry.moved_by_graph) return;
  entry.in_use = true;
  // A scope that never ends sees many come and go.
  if (in_use_.size() > 2 * entries_.size() + 64) {
    std::erase_if(in_use_, [&](const Name& name) { return find(name.weight) == nullptr; });
  }
  in_use_.push_back({weight.unsafeGetTensorImpl(), entry.number});
  if (!entry.is_trained(weight)) return;
  for (const auto& shadow : entry.shadows) shadow->doubt();
}

void WeightShadows::end_outermost_scope() {
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  drop_gone(dropped);
  for (const Name& name : in_use_) {
    WeightEntry* const entry = find(name.weight);
    if (!entry || entry->number != name.number) continue;
    entry->in_use = false;
    if (entry->kept_fresh) continue;
    for (const auto& shadow : entry->shadows) shadow->pause();
  }
  in_use_.clear();
}

void WeightShadows::refresh(at::TensorList weights) {
  const Unrecorded guard;
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Shadow*, const at::Tensor*>> filled;
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> values;
  for (const at::Tensor& weight : weights) {
    WeightEntry* const entry = find(weight);
    if (!entry) continue;
    const QueuePlace here = QueuePlace::of(weight.device());
    entry->updates_are_reported(here);
    if (entry->moved_by_graph) continue;
    entry->follow_memory(weight);
    for (const auto& shadow : entry->shadows) {
      if (!shadow->begin_refill(here)) continue;
      filled.emplace_back(shadow.get(), &weight);
      if (shadow->kind().in_float) {
        shadow->fill(weight);
      } else {
        copies.push_back(shadow->base());
        values.push_back(weight.detach());
      }
    }
  }
  if (!copies.empty()) at::_foreach_copy_(copies, values);
  FillEnds ends;
  for (const auto& [shadow, weight] : filled)
    shadow->end_refill(*weight, ends.of(weight->device()));
  count_weight_casts(static_cast<std::int64_t>(filled.size()));
}

std::optional<CastLoan> WeightShadows::lend(const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  WeightEntry* const entry = find(weight);
  if (!entry) return std::nullopt;
  const QueuePlace here = QueuePlace::of(weight.device());
  entry->updates_are_reported(here);
  if (entry->moved_by_graph) return std::nullopt;
  entry->follow_memory(weight);
  std::shared_ptr<Shadow> used;
  for (const auto& shadow : entry->shadows) {
    if (!shadow->was_used()) continue;
    if (used) return std::nullopt;
    used = shadow;
  }
  if (!used || !used->can_be_written_with(weight)) return std::nullopt;
  for (const auto& shadow : entry->shadows) shadow->begin_refill(here);
  const ShadowKind kind = used->kind();
  at::Tensor copy = used->base();
  return CastLoan{std::move(used), weight, weight.storage().unsafeGetStorageImpl(), std::move(copy),
                  kind.in_float ? std::optional(kind.low) : std::nullopt};
}

void WeightShadows::take_back(std::span<const CastLoan> loans) {
  const std::lock_guard lock(mutex_);
  FillEnds ends;
  for (const CastLoan& loan : loans) {
    // A use, an invalidation or a move of the weight in the meantime made the loan void.
    if (!loan.shadow->is_refilling(loan.copy)) continue;
    if (loan.weight.storage().unsafeGetStorageImpl() == loan.storage) {
      loan.shadow->end_refill(loan.weight, ends.of(loan.weight.device()));
    }
  }
}

void WeightShadows::invalidate(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    WeightEntry* const entry = find(weight);
    if (!entry) continue;
    const QueuePlace here = QueuePlace::of(weight.device());
    if (here.capture != 0) entry->updates_are_reported(here);
    entry->invalidate();
  }
}

void WeightShadows::leave(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    WeightEntry* const entry = find(weight);
    if (!entry || !std::exchange(entry->kept_fresh, false)) continue;
    entry->invalidate();
  }
}

void WeightShadows::drop_all() {
  std::vector<std::shared_ptr<Shadow>> dropped;  // freed after the lock, as entries are
  {
    const std::lock_guard lock(mutex_);
    for (auto& [weight, entry] : entries_) {
      for (auto& shadow : entry->take_shadows()) {
        shadow->invalidate();
        dropped.push_back(std::move(shadow));
      }
    }
  }
  for (const auto& shadow : dropped) shadow->retire();
}

void WeightShadows::remember(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    if (!weight.defined() || !weight.has_storage() || weight.is_inference() || find(weight))
      continue;
    ages_.add_old({weight.unsafeGetTensorImpl(), add(weight).number});
  }
}

void WeightShadows::forget(at::TensorList weights) {
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    const auto found =
        weight.defined() ? entries_.find(weight.unsafeGetTensorImpl()) : entries_.end();
    if (found == entries_.end()) continue;
    dropped.push_back(std::move(found->second));
    entries_.erase(found);
  }
}

std::size_t WeightShadows::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace mezzo::casting
