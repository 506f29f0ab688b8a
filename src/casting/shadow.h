// One persistent low-precision copy of one weight: its values, the aliases of them that autograd
// links to the weight, and the rule that tells whether they still hold.
//
// Note [Two ways to a shadow]: the registry (weight_shadows.h) makes, refills and retires shadows
// under its mutex. Operators on any thread take what is there without that mutex, so a shadow has a
// lock of its own, held for the few instructions that check it and count one more reference. While
// the registry changes a shadow, the shadow is closed: `peek` then finds nothing, and the operator
// asks the registry. What the registry reads needs no lock, since only it writes.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "casting/shadow_node.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Which copy of a weight: its low type, stored as such or as float that holds rounded values
/// (emulation).
struct ShadowKind {
  at::ScalarType low;
  bool in_float;
  bool operator==(const ShadowKind&) const = default;
};

/// Ordinary tensors without history, whatever mode the caller is in: a copy made in inference mode
/// could never be refreshed.
struct Unrecorded {
  c10::InferenceMode ordinary{false};
  at::NoGradGuard no_grad;
};

/// Do two dense tensors lay out their elements alike?
C10_ALWAYS_INLINE bool same_layout(c10::TensorImpl& a, c10::TensorImpl& b) {
  const auto& one = a.sizes_and_strides();
  const auto& other = b.sizes_and_strides();
  const std::size_t dims = one.size();
  if (dims != other.size()) return false;
  const std::int64_t* const sizes = one.sizes_data();
  const std::int64_t* const strides = one.strides_data();
  const std::int64_t* const other_sizes = other.sizes_data();
  const std::int64_t* const other_strides = other.strides_data();
  for (std::size_t i = 0; i < dims; ++i) {
    if (sizes[i] != other_sizes[i] || strides[i] != other_strides[i]) return false;
  }
  return true;
}

class Shadow {
 public:
  explicit Shadow(ShadowKind kind) : kind_(kind) {}

  ShadowKind kind() const { return kind_; }

  /// How an operator wants the copy.
  struct Use {
    bool transposed;
    bool with_history;
  };

  /// The copy for `argument`, the weight itself or a view of it, if it is at hand and fresh; else
  /// null. Any thread; to be called with the lock held, and copied from before the lock is left.
  const at::Tensor* peek(c10::TensorImpl& argument, c10::TensorImpl& weight, Use use) noexcept;

  /// Holds the lock of a shadow, if there is one and nobody else has it.
  class Lock {
   public:
    explicit Lock(Shadow* shadow)
        : shadow_(shadow != nullptr && !shadow->locked_.exchange(true, std::memory_order_acquire)
                      ? shadow
                      : nullptr) {}
    ~Lock() {
      if (shadow_ != nullptr) shadow_->leave();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    explicit operator bool() const { return shadow_ != nullptr; }

   private:
    Shadow* shadow_;
  };

  // The rest is the registry's, under its mutex.

  /// Does the copy hold the weight's value, as far as can be known?
  bool fresh(const at::Tensor& weight) const;

  /// Fills the copy anew: in place where the weight is known to have changed, so that graphs which
  /// saved the old values fail as they would without casts; else in new memory, so that they stay
  /// valid.
  void cast_again(const at::Tensor& weight);

  /// The copy of a fresh shadow for the weight or, if `view` is not null, for that view of it.
  at::Tensor use(const at::Tensor& weight, const at::Tensor* view, bool with_history);

  /// The next use casts again.
  void invalidate();

  /// Between these two the caller writes the weight's new values into base(). Nothing is begun, and
  /// the copy invalidated, if there is none or nobody used it since the last time.
  bool begin_refill();
  void end_refill(const at::Tensor& weight);
  const at::Tensor& base() const { return base_; }
  bool was_used() const { return used_.load(std::memory_order_relaxed); }

  /// Can base() be written in one pass with the weight, the same elements in the same places, each
  /// rounded once?
  bool can_be_written_with(const at::Tensor& weight) const;

  /// Begun with this base(), and nobody ended it, cast or invalidated since.
  bool is_refilling(const at::Tensor& base) const {
    return storage_ == nullptr && !invalid_ && base_.is_same(base);
  }

  /// Frees all values; the shadow stays unusable.
  void retire();

  /// Is there a node? It holds the weight's accumulator, and that holds the weight.
  bool holds_weight() const { return nodes_[0] || nodes_[1]; }

 private:
  void enter() noexcept;
  void leave() noexcept { locked_.store(false, std::memory_order_release); }
  void close() noexcept;
  void open(const at::Tensor& weight);
  void drop_aliases();
  const at::Tensor& whole(const at::Tensor& weight, Use use);
  at::Tensor viewed(const at::Tensor& weight, const at::Tensor& view, bool with_history) const;
  at::Tensor& alias(Use use) { return aliases_[2 * use.transposed + use.with_history]; }

  const ShadowKind kind_;
  at::Tensor base_;
  bool invalid_ = false;           // doubtful, whatever the weight's version says
  std::atomic<bool> used_{false};  // since the last refill
  std::array<std::shared_ptr<ShadowNode>, 2> nodes_;  // straight, transposed
  std::array<std::uint32_t, 2> outputs_{};
  const GradientFlowed flowed_ = std::make_shared<std::atomic<bool>>(false);

  // What `peek` reads. Written under the lock, or while the shadow is closed.
  std::atomic<bool> locked_{false};
  caffe2::TypeMeta type_;  // of the weight
  std::uint32_t version_ = 0;
  const c10::StorageImpl* storage_ = nullptr;  // null: closed
  std::int64_t offset_ = 0;
  std::array<at::Tensor, 4> aliases_;  // share the base's memory and version
};

C10_ALWAYS_INLINE const at::Tensor* Shadow::peek(c10::TensorImpl& argument, c10::TensorImpl& weight,
                                                 Use use) noexcept {
  // A closed shadow has no storage; weights do.
  if (storage_ != weight.unsafe_storage().unsafeGetStorageImpl() ||
      version_ != weight.version_counter().current_version() || type_ != weight.dtype() ||
      offset_ != argument.storage_offset() || flowed_->load(std::memory_order_acquire)) {
    return nullptr;
  }
  const at::Tensor& copy = alias(use);
  if (!copy.defined() || !same_layout(argument, *copy.unsafeGetTensorImpl())) return nullptr;
  if (use.transposed && !same_layout(weight, *base_.unsafeGetTensorImpl())) return nullptr;
  used_.store(true, std::memory_order_relaxed);
  return &copy;
}

}  // namespace mezzo::casting
