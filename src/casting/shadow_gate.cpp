#include "casting/shadow_gate.h"

#include <thread>
#include <utility>

namespace mezzo::casting {
namespace {

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

void ShadowGate::enter() noexcept {
  while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
}

// Told before the lock is taken: whoever opens at the same time either reads it or is undone here.
void ShadowGate::gradient_flowed() noexcept {
  ever_flowed_.store(true, std::memory_order_relaxed);
  flowed_.store(true);
  pause();
}

void ShadowGate::pause() noexcept {
  enter();
  storage_ = nullptr;
  leave();
}

void ShadowGate::open(const at::Tensor& weight) noexcept {
  is_open_ = true;
  enter();
  type_ = weight.dtype();
  version_ = version_of(weight);
  storage_ = flowed_.load() ? nullptr : weight.storage().unsafeGetStorageImpl();
  offset_ = weight.storage_offset();
  leave();
}

void ShadowGate::close() noexcept {
  is_open_ = false;
  pause();
  // Before the weight is read: a gradient that flows while it is read makes the copy doubtful.
  flowed_.store(false);
}

bool ShadowGate::holds_for(const at::Tensor& weight) const noexcept {
  return is_open_ && !flowed_.load() && !version_differs(weight);
}

bool ShadowGate::version_differs(const at::Tensor& weight) const noexcept {
  return version_ != version_of(weight);
}

void ShadowGate::keep(Use use, at::Tensor copy) noexcept {
  enter();
  copies_[place_of(use)] = std::move(copy);
  leave();
}

void ShadowGate::drop_copies() noexcept {
  std::array<at::Tensor, 4> dropped;  // freed after the lock: graphs may go with them
  enter();
  std::swap(dropped, copies_);
  leave();
}

}  // namespace mezzo::casting
