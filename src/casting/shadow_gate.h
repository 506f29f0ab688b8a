// How operators come to a weight's low-precision copy.
//
// Note [Two ways to a shadow]: the registry (weight_shadows.h) makes, refills and retires shadows
// under its mutex. Operators on any thread take what is there without that mutex, through the
// shadow's gate: it has a lock of its own, held for the few instructions that check whether the
// copy holds and count one more reference. The registry closes the gate while it changes a shadow,
// and the backward pass closes it when a gradient has gone to the weight; operators then ask the
// registry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/torch.h"

namespace mezzo::casting {

/// Do two dense tensors lay out their elements alike? Told for up to five dimensions, which
/// LibTorch keeps inside the tensor; beyond, no.
C10_ALWAYS_INLINE bool same_layout(c10::TensorImpl& a, c10::TensorImpl& b) {
  const auto& one = a.sizes_and_strides();
  const auto& other = b.sizes_and_strides();
  std::int64_t differ = 0;
  const auto look = [&](std::size_t i) C10_ALWAYS_INLINE_ATTRIBUTE {
    differ |= one.sizes_data()[i] ^ other.sizes_data()[i];
    differ |= one.strides_data()[i] ^ other.strides_data()[i];
  };
  // The shape of most weights, without a loop.
  if (one.size() == 2 && other.size() == 2) {
    look(0);
    look(1);
    return differ == 0;
  }
  const std::size_t dims = one.size();
  if (dims != other.size() || dims > C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE) return false;
  for (std::size_t i = 0; i < dims; ++i) look(i);
  return differ == 0;
}

/// Is one matrix the transpose of the other, if both lie at the same place?
C10_ALWAYS_INLINE bool transposed_layout(c10::TensorImpl& a, c10::TensorImpl& b) {
  const auto& one = a.sizes_and_strides();
  const auto& other = b.sizes_and_strides();
  if (one.size() != 2 || other.size() != 2) return false;
  std::int64_t differ = 0;
  for (const std::size_t i : {0, 1}) {
    differ |= one.sizes_data()[i] ^ other.sizes_data()[1 - i];
    differ |= one.strides_data()[i] ^ other.strides_data()[1 - i];
  }
  return differ == 0;
}

class ShadowGate {
 public:
  /// How an operator wants the copy.
  struct Use {
    bool transposed;
    bool with_history;
  };

  /// A new reference to the copy for `argument`, the weight itself or its transpose, if it is at
  /// hand and fresh; else null. Any thread. `weight` is alive, so that a gate which is open is its
  /// own.
  c10::TensorImpl* peek(c10::TensorImpl& argument, c10::TensorImpl& weight, Use use) noexcept;

  /// A gradient has gone to the weight, and an update may follow that the version counter does not
  /// show: the copy is doubtful from now on. Any thread.
  void gradient_flowed() noexcept;

  // The rest is the registry's, under its mutex.

  /// Opens for the weight as it is now, unless a gradient has flowed since the gate was closed.
  void open(const at::Tensor& weight) noexcept;
  void close() noexcept;
  /// Operators do not get through, though the gate counts as open: until open().
  void pause() noexcept;

  /// Was it opened, and not closed since? Gradients do not count.
  bool is_open() const noexcept { return is_open_; }
  /// Is the gate open, and does the weight have the version that it had then?
  bool holds_for(const at::Tensor& weight) const noexcept;
  /// Has the weight another version than when the gate was last opened?
  bool version_differs(const at::Tensor& weight) const noexcept;

  /// The copies that are handed out; undefined until they were asked for.
  const at::Tensor& copy(Use use) const { return copies_[place_of(use)]; }
  void keep(Use use, at::Tensor copy) noexcept;
  void drop_copies() noexcept;

  /// Has a gradient ever gone to the weight from here?
  bool saw_gradient() const noexcept { return ever_flowed_.load(std::memory_order_relaxed); }

  bool was_used() const noexcept { return used_.load(std::memory_order_relaxed); }
  void mark_used() noexcept { used_.store(true, std::memory_order_relaxed); }
  /// Was a copy handed out since this was last taken?
  bool take_used() noexcept { return used_.exchange(false, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t place_of(Use use) { return 2 * use.transposed + use.with_history; }
  void enter() noexcept;
  void leave() noexcept { locked_.store(false, std::memory_order_release); }

  bool is_open_ = false;  // as far as the registry knows
  std::atomic<bool> used_{false};
  std::atomic<bool> flowed_{false};  // since the gate was closed
  std::atomic<bool> ever_flowed_{false};

  // Read by `peek`, written under the lock.
  std::atomic<bool> locked_{false};
  caffe2::TypeMeta type_;  // of the weight
  std::uint32_t version_ = 0;
  const c10::StorageImpl* storage_ = nullptr;  // null: closed; weights have one
  std::int64_t offset_ = 0;
  std::array<at::Tensor, 4> copies_;  // share one memory and version
};

// Instructions are counted here (bench casting): each listed operator passes once for each weight.
C10_ALWAYS_INLINE c10::TensorImpl* ShadowGate::peek(c10::TensorImpl& argument,
                                                    c10::TensorImpl& weight, Use use) noexcept {
  if (locked_.exchange(true, std::memory_order_acquire)) return nullptr;
  c10::TensorImpl* copy = copies_[place_of(use)].unsafeGetTensorImpl();
  // A view keeps the memory that it was taken of when its weight gets another.
  if (storage_ == weight.unsafe_storage().unsafeGetStorageImpl() &&
      storage_ == argument.unsafe_storage().unsafeGetStorageImpl() &&
      version_ == weight.version_counter().current_version() && type_ == weight.dtype() &&
      offset_ == argument.storage_offset_default() &&
      copy != c10::UndefinedTensorImpl::singleton() && same_layout(argument, *copy)) {
    used_.store(true, std::memory_order_relaxed);
    c10::raw::intrusive_ptr::incref(copy);
  } else {
    copy = nullptr;
  }
  leave();
  return copy;
}

}  // namespace mezzo::casting
