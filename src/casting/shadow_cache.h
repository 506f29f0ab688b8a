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

  /// The fresh copy for a weight or its transpose; undefined where this thread knows of none.
  at::Tensor find(const at::Tensor& tensor, ShadowKind kind) const;

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

  // This thread's own, at one place as long as the thread lives.
  const c10::AutogradState& state_ = c10::AutogradState::get_tls_state();
  std::array<Line, std::size_t{1} << kBits> lines_;
};

inline at::Tensor ShadowCache::find(const at::Tensor& tensor, ShadowKind kind) const {
  using torch::autograd::AutogradMeta;
  using torch::autograd::DifferentiableViewMeta;
  c10::TensorImpl* const argument = tensor.unsafeGetTensorImpl();
  c10::TensorImpl* weight = argument;
  // Read directly: is_leaf(), is_view() and requires_grad() each go through virtual hooks.
  const auto* meta = static_cast<const AutogradMeta*>(argument->autograd_meta());
  const AutogradMeta* weight_meta = meta;
  const bool is_view = meta != nullptr && meta->is_view_;
  if (is_view) {
    const auto* view = static_cast<const DifferentiableViewMeta*>(meta);
    if (!view->has_bw_view()) return {};
    weight = view->get_backward_view().base_.unsafeGetTensorImpl();
    weight_meta = static_cast<const AutogradMeta*>(weight->autograd_meta());
  }
  const std::uintptr_t key = key_of(weight, kind);
  const Line& line = lines_[line_of(key)];
  if (line.key != key) return {};
  const bool with_history =
      weight_meta != nullptr && weight_meta->requires_grad_ && state_.get_grad_mode();
  // A view made without a graph, used with one: its gradient must not reach the weight.
  if (is_view && with_history && !meta->grad_fn_) return {};
  return line.shadow->take(*argument, *weight,
                           {.transposed = is_view, .with_history = with_history});
}

}  // namespace mezzo::casting
