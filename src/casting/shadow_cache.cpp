#include "casting/shadow_cache.h"

namespace mezzo::casting {
namespace {

// Plain values beside the owner, since scopes may still be opened while a thread's objects go.
thread_local ShadowCache* cache = nullptr;
thread_local bool gone = false;

struct Owner {
  ~Owner() {
    delete cache;
    cache = nullptr;
    gone = true;
  }
};

}  // namespace

ShadowCache* ShadowCache::of_this_thread() {
  if (cache != nullptr || gone) return cache;
  static thread_local const Owner owner;
  cache = new ShadowCache;
  return cache;
}

ShadowCache::Found ShadowCache::find_for_view(const c10::TensorImpl& view, ShadowKind kind) const {
  using torch::autograd::AutogradMeta;
  const auto& meta =
      static_cast<const torch::autograd::DifferentiableViewMeta&>(*view.autograd_meta());
  if (!meta.has_bw_view()) return {};
  c10::TensorImpl* const weight = meta.get_backward_view().base_.unsafeGetTensorImpl();
  const auto* weight_meta = static_cast<const AutogradMeta*>(weight->autograd_meta());
  const std::uintptr_t key = key_of(weight, kind);
  const Line& line = lines_[line_of(key)];
  if (line.key != key) return {};
  const bool with_history =
      weight_meta != nullptr && weight_meta->requires_grad_ && state_.get_grad_mode();
  // A view made without a graph, used with one: its gradient must not reach the weight.
  if (with_history && !meta.grad_fn_) return {};
  return {line.shadow.get(), weight, {.transposed = true, .with_history = with_history}};
}

void ShadowCache::put(const at::Tensor& weight, const std::shared_ptr<Shadow>& shadow) {
  const std::uintptr_t key = key_of(weight.unsafeGetTensorImpl(), shadow->kind());
  lines_[line_of(key)] = {key, shadow};
}

}  // namespace mezzo::casting
