#include "casting/shadow_cache.h"

namespace mezzo::casting {
namespace {

constexpr std::size_t kKinds = 4;
constexpr std::size_t place_of(ShadowKind kind) {
  return (kind.low == at::kHalf ? 0 : 1) + (kind.in_float ? 2 : 0);
}

// Plain values beside the owner, since scopes may still be opened while a thread's objects go.
thread_local std::array<ShadowCache*, kKinds> caches{};
thread_local bool gone = false;

struct Owner {
  ~Owner() {
    for (ShadowCache*& cache : caches) {
      delete cache;
      cache = nullptr;
    }
    gone = true;
  }
};

}  // namespace

ShadowCache* ShadowCache::of_this_thread(ShadowKind kind) {
  ShadowCache*& cache = caches[place_of(kind)];
  if (cache != nullptr || gone) return cache;
  static thread_local const Owner owner;
  cache = new ShadowCache;
  return cache;
}

c10::TensorImpl* ShadowCache::copy_of_transpose(c10::TensorImpl& view) const noexcept {
  using torch::autograd::AutogradMeta;
  const auto& meta =
      static_cast<const torch::autograd::DifferentiableViewMeta&>(*view.autograd_meta());
  if (!meta.has_bw_view()) return nullptr;
  c10::TensorImpl& weight = *meta.get_backward_view().base_.unsafeGetTensorImpl();
  const Line& line = lines_[line_of(&weight)];
  if (line.weight != &weight) return nullptr;
  const bool with_history =
      wants_gradient(static_cast<const AutogradMeta*>(weight.autograd_meta()));
  // A view made without a graph, used with one: its gradient must not reach the weight.
  if (with_history && !meta.grad_fn_) return nullptr;
  return line.gate->peek(view, weight, {.transposed = true, .with_history = with_history});
}

void ShadowCache::put(const at::Tensor& weight, const std::shared_ptr<ShadowGate>& gate) {
  const c10::TensorImpl* const address = weight.unsafeGetTensorImpl();
  lines_[line_of(address)] = {address, gate};
}

}  // namespace mezzo::casting
