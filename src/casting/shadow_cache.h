// A thread's own way to the shadows that it used lately: a weight that was cast before is found
// without a lock or a search.
#pragma once

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "casting/shadow.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Direct-mapped by the weight's address. A line outlives what it names: the registry retires the
/// shadow before the weight's address can be given to another tensor, and a retired shadow hands
/// out nothing.
class ShadowCache {
 public:
  /// This thread's; null while the thread's own objects are being destroyed.
  static ShadowCache* of_this_thread();

  /// What this thread knows of a tensor that is a weight or a view of one.
  struct Found {
    Shadow* shadow = nullptr;  // null: nothing
    c10::TensorImpl* weight = nullptr;
    Shadow::Use use{};
  };
  Found find(const at::Tensor& tensor, ShadowKind kind) const;

  /// Off: nothing is found (see WeightKeeping).
  void switch_on(bool on) noexcept { on_ = on; }

  void put(const at::Tensor& weight, const std::shared_ptr<Shadow>& shadow);

 private:
  struct Line {
    std::uintptr_t key = 0;
    std::shared_ptr<Shadow> shadow;
  };
  static constexpr int kBits = 9;

  // Tensors are aligned to 8 bytes, so the kind fits into the low bits of their address.
  static std::uintptr_t key_of(const c10::TensorImpl* weight, ShadowKind kind) {
    return reinterpret_cast<std::uintptr_t>(weight) |
           (kind.low == at::kHalf ? std::uintptr_t{0} : 1) | (kind.in_float ? 2 : 0);
  }
  static std::size_t line_of(std::uintptr_t key) {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> (64 - kBits));
  }

  bool on_ = true;
  // This thread's own, at one place as long as the thread lives.
  const c10::AutogradState& state_ = c10::AutogradState::get_tls_state();
  std::array<Line, std::size_t{1} << kBits> lines_;

  Found find_for_view(const c10::TensorImpl& view, ShadowKind kind) const;
};

C10_ALWAYS_INLINE ShadowCache::Found ShadowCache::find(const at::Tensor& tensor,
                                                       ShadowKind kind) const {
  using torch::autograd::AutogradMeta;
  c10::TensorImpl* const argument = tensor.unsafeGetTensorImpl();
  // Read directly: is_leaf(), is_view() and requires_grad() each go through virtual hooks.
  const auto* meta = static_cast<const AutogradMeta*>(argument->autograd_meta());
  const std::uintptr_t key = key_of(argument, kind);
  const Line& line = lines_[line_of(key)];
  if (!on_) return {};
  if (line.key == key) {
    const bool with_history = meta != nullptr && meta->requires_grad_ && state_.get_grad_mode();
    return {line.shadow.get(), argument, {.transposed = false, .with_history = with_history}};
  }
  return meta != nullptr && meta->is_view_ ? find_for_view(*argument, kind) : Found{};
}

}  // namespace mezzo::casting
