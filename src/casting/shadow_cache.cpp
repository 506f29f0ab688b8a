#include "casting/shadow_cache.h"

#include "casting/plain_transpose.h"
#include "core/scalar_type.h"

namespace mezzo::casting {
namespace {

// A low type's copies, and those of a type that is emulated.
constexpr std::size_t kKinds = 2 * kLowTypeCount;
constexpr std::size_t place_of(ShadowKind kind) {
  const DTypeRow* const row = row_of(kind.low);
  const auto column = row == nullptr ? 0 : std::max<int>(row->low_column, 0);
  return static_cast<std::size_t>(column) + (kind.in_float ? kLowTypeCount : 0);
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
  if (with_history) {
    // A view made without a graph, used with one: its gradient must not reach the weight. A view
    // older than the weight's value: another thread may be about to replace its node.
    if (!meta.grad_fn_ || meta.get_attr_version() != weight.version_counter().current_version())
      return nullptr;
  } else if (state_.get_grad_mode() && (meta.requires_grad_ || meta.grad_fn_)) {
    return nullptr;  // a trainable view of a frozen weight
  }
  if (meta.fw_grad_ || view.is_neg()) return nullptr;
  c10::TensorImpl* const copy =
      line.gate->peek(view, weight, {.transposed = true, .with_history = with_history});
  if (copy == nullptr || !with_history) return copy;
  const auto& own = static_cast<const AutogradMeta&>(*copy->autograd_meta());
  if (is_plain_transpose(*meta.grad_fn_, own.grad_fn_->next_edge(0).function.get())) return copy;
  c10::raw::intrusive_ptr::decref(copy);
  return nullptr;
}

void ShadowCache::put(const at::Tensor& weight, const std::shared_ptr<ShadowGate>& gate) {
  const c10::TensorImpl* const address = weight.unsafeGetTensorImpl();
  lines_[line_of(address)] = {address, gate};
}

}  // namespace mezzo::casting
