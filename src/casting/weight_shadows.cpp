#include "casting/weight_shadows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/t.h>
#include <ATen/ops/to.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include "casting/counts.h"
#include "casting/shadow_node.h"
#include "casting/weights.h"

namespace mezzo::casting {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

// Ordinary tensors without history, whatever mode the caller is in: a copy made in inference mode
// could never be refreshed.
struct Unrecorded {
  c10::InferenceMode ordinary{false};
  at::NoGradGuard no_grad;
};

at::Tensor low_values(const at::Tensor& leaf, ShadowKind kind) {
  const at::Tensor low = leaf.scalar_type() == kind.low ? leaf : leaf.detach().to(kind.low);
  return kind.in_float ? low.to(at::kFloat) : low;
}

bool is_transpose(const at::Tensor& view, const at::Tensor& leaf) {
  return leaf.dim() == 2 && view.dim() == 2 && view.size(0) == leaf.size(1) &&
         view.size(1) == leaf.size(0) && view.stride(0) == leaf.stride(1) &&
         view.stride(1) == leaf.stride(0) && view.storage_offset() == leaf.storage_offset();
}

}  // namespace

struct WeightShadows::Linked {
  at::Tensor alias;  // shares the copy's memory and version, has the node as its history
  std::shared_ptr<ShadowNode> node;
  std::uint32_t output = 0;
};

struct WeightShadows::Copy {
  ShadowKind kind{};
  at::Tensor base;
  Linked straight;
  Linked transposed;
  GradientFlowed flowed = std::make_shared<std::atomic<bool>>(false);
  std::uint32_t version = 0;
  bool invalid = false;
  bool used = false;  // since the last refresh

  void drop_aliases() {
    straight.alias.reset();
    transposed.alias.reset();
  }

  // The memory stays where the weight is known to have changed: graphs that saved the old values
  // must fail.
  void cast_again(const at::Tensor& leaf) {
    Unrecorded guard;
    if (base.defined() && !invalid && version != version_of(leaf)) {
      base.copy_(kind.in_float ? low_values(leaf, kind) : leaf);
    } else {
      base = low_values(leaf, kind);
      drop_aliases();
    }
    count_weight_casts();
    mark_fresh(leaf);
  }

  void mark_fresh(const at::Tensor& leaf) {
    version = version_of(leaf);
    invalid = false;
    flowed->store(false, std::memory_order_release);
  }

  bool fresh(const at::Tensor& leaf) const {
    return base.defined() && !invalid && version == version_of(leaf) &&
           !flowed->load(std::memory_order_acquire);
  }

  const at::Tensor& linked(Linked& link, const at::Tensor& leaf, bool transpose) {
    if (link.alias.defined()) return link.alias;
    Unrecorded guard;
    link.alias = transpose ? base.t().detach() : base.detach();
    if (!link.node) {
      const ShadowNode::Way way{leaf.scalar_type(), kind.low, transpose};
      link.node =
          std::make_shared<ShadowNode>(torch::autograd::impl::gradient_edge(leaf), way, flowed);
      link.output = link.node->add_input_metadata(link.alias);
    }
    torch::autograd::impl::set_gradient_edge(link.alias, {link.node, link.output});
    return link.alias;
  }

  // Any other view: its geometry on the copy's memory. Its history goes on through the view's own.
  at::Tensor viewed(const at::Tensor& leaf, const at::Tensor& view, bool with_history) const {
    Unrecorded guard;
    at::Tensor shaped =
        base.as_strided(view.sizes(), view.strides(), view.storage_offset() - leaf.storage_offset())
            .detach();
    if (with_history) {
      const ShadowNode::Way way{view.scalar_type(), kind.low, false};
      auto node =
          std::make_shared<ShadowNode>(torch::autograd::impl::gradient_edge(view), way, flowed);
      torch::autograd::impl::set_gradient_edge(shaped, {node, node->add_input_metadata(shaped)});
    }
    return shaped;
  }
};

struct WeightShadows::Entry {
  explicit Entry(const at::Tensor& tensor)
      : leaf(tensor.getIntrusivePtr()), storage(storage_of(tensor)), dtype(tensor.scalar_type()) {}

  static c10::intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
    return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        tensor.storage().unsafeGetStorageImpl());
  }

  WeakTensor leaf;
  WeakStorage storage;  // held, so that another storage cannot take its address
  at::ScalarType dtype;
  std::vector<Copy> copies;

  bool same_memory(const at::Tensor& tensor) const {
    return storage._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
           dtype == tensor.scalar_type();
  }

  // With other memory the weight may have another accumulator too, so nothing is kept.
  void follow_memory(const at::Tensor& tensor) {
    if (same_memory(tensor)) return;
    storage = WeakStorage(storage_of(tensor));
    dtype = tensor.scalar_type();
    copies.clear();
  }

  Copy& copy_of(ShadowKind kind) {
    for (Copy& copy : copies) {
      if (copy.kind == kind) return copy;
    }
    copies.push_back(Copy{.kind = kind});
    return copies.back();
  }

  // The node that links a copy holds the leaf's accumulator, and that holds the leaf.
  bool nobody_else_holds_leaf() const {
    const std::size_t owners = leaf.use_count();
    if (owners == 0) return true;
    if (owners > 1) return false;
    for (const Copy& copy : copies) {
      if (copy.straight.node || copy.transposed.node) return true;
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

// An entry's weak reference keeps the memory of its leaf from being used again, so that an address
// names one leaf only.
WeightShadows::Entry* WeightShadows::find(const at::Tensor& leaf) {
  const auto found = entries_.find(leaf.unsafeGetTensorImpl());
  return found == entries_.end() ? nullptr : found->second.get();
}

WeightShadows::Entry& WeightShadows::entry_of(const at::Tensor& leaf) {
  if (Entry* entry = find(leaf)) return *entry;
  return *(entries_[leaf.unsafeGetTensorImpl()] = std::make_unique<Entry>(leaf));
}

bool WeightShadows::knows(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  return find(tensor) != nullptr;
}

at::Tensor WeightShadows::use(const at::Tensor& tensor, ShadowKind kind) {
  // Read directly: is_leaf(), is_view() and requires_grad() each go through LibTorch's virtual
  // hooks.
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(
      tensor.unsafeGetTensorImpl()->autograd_meta());
  if (meta != nullptr && !meta->is_view_ && meta->requires_grad_ && !meta->grad_fn_) {
    return tensor.is_inference() ? at::Tensor() : use_leaf(tensor, kind, nullptr);
  }
  if (tensor.is_inference() || !tensor.has_storage()) return {};
  // Views before leaves: one that was made without a graph claims to be a leaf that wants a
  // gradient.
  if (meta != nullptr && meta->is_view_) {
    const at::Tensor base(tensor._base());
    const bool leaf =
        base.is_leaf() && !base.is_inference() && base.scalar_type() == tensor.scalar_type();
    if (leaf && (base.requires_grad() || knows(base))) return use_leaf(base, kind, &tensor);
  }
  if (!tensor.is_leaf()) return {};
  return tensor.requires_grad() || knows(tensor) ? use_leaf(tensor, kind, nullptr) : at::Tensor();
}

at::Tensor WeightShadows::use_leaf(const at::Tensor& leaf, ShadowKind kind,
                                   const at::Tensor* view) {
  if (!leaf.has_storage() || !leaf.is_non_overlapping_and_dense()) return {};
  const bool with_history = leaf.requires_grad() && at::GradMode::is_enabled();
  // A view made without a graph, used with one: its gradient must not reach the weight.
  if (view != nullptr && with_history && view->is_leaf()) return {};
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(leaf);
  entry.follow_memory(leaf);
  Copy& copy = entry.copy_of(kind);
  if (!copy.fresh(leaf)) copy.cast_again(leaf);
  copy.used = true;
  if (view == nullptr) return with_history ? copy.linked(copy.straight, leaf, false) : copy.base;
  if (with_history && is_transpose(*view, leaf)) return copy.linked(copy.transposed, leaf, true);
  return copy.viewed(leaf, *view, with_history);
}

void WeightShadows::refresh(at::TensorList weights) {
  Unrecorded guard;
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> values;
  for (const at::Tensor& weight : weights) {
    Entry* const entry = weight.defined() ? find(weight) : nullptr;
    if (!entry) continue;
    entry->follow_memory(weight);
    for (Copy& copy : entry->copies) {
      if (!copy.base.defined()) continue;
      if (!std::exchange(copy.used, false)) {
        copy.invalid = true;
        continue;
      }
      copies.push_back(copy.base);
      values.push_back(copy.kind.in_float ? low_values(weight, copy.kind) : weight.detach());
      copy.mark_fresh(weight);
    }
  }
  if (copies.empty()) return;
  at::_foreach_copy_(copies, values);
  count_weight_casts(static_cast<std::int64_t>(copies.size()));
}

void WeightShadows::invalidate(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    Entry* const entry = weight.defined() ? find(weight) : nullptr;
    if (!entry) continue;
    for (Copy& copy : entry->copies) copy.invalid = true;
  }
}

void WeightShadows::invalidate_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [leaf, entry] : entries_) {
    for (Copy& copy : entry->copies) copy.invalid = true;
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

at::Tensor WeightShadows::writable_copy(const at::Tensor& weight, ShadowKind* kind) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(weight);
  if (!entry || !entry->same_memory(weight)) return {};
  for (Copy& copy : entry->copies) {
    if (!copy.base.defined() || !copy.used || copy.invalid) continue;
    *kind = copy.kind;
    return copy.base;
  }
  return {};
}

void WeightShadows::mark_written(at::TensorList weights) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& weight : weights) {
    Entry* const entry = find(weight);
    if (!entry) continue;
    bool first = true;
    for (Copy& copy : entry->copies) {
      if (!copy.base.defined() || !copy.used || copy.invalid) continue;
      if (std::exchange(first, false)) {
        copy.mark_fresh(weight);
      } else {
        copy.invalid = true;
      }
    }
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
    if (it->second->nobody_else_holds_leaf()) {
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

WeightKeeping::WeightKeeping(bool keeps) noexcept : before_(std::exchange(keeps_weights, keeps)) {}

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
