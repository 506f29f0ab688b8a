#include "gluon/freshness.h"

#include <c10/core/StorageImpl.h>

namespace mezzo::gluon {
namespace {

/// Kept weakly, so that its address stays its own.
c10::weak_intrusive_ptr<c10::StorageImpl> memory_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  }
  return tensor.storage().getWeakStorageImpl();
}

}  // namespace

Freshness::Freshness(std::vector<std::vector<at::Tensor>> parameters)
    : count_(parameters.front().size()) {
  std::vector<at::Tensor> hooked;
  std::vector<std::size_t> place;
  for (std::vector<at::Tensor>& replica : parameters) {
    for (at::Tensor& parameter : replica) {
      const bool hooks = parameter.is_leaf() && parameter.requires_grad();
      if (hooks) {
        hooked.push_back(parameter);
        place.push_back(all_.size());
      }
      all_.push_back({std::move(parameter), hooks, memory_of(at::Tensor())});
    }
  }
  arrived_ = std::make_unique<std::atomic<bool>[]>(all_.size());
  hooks_.emplace(hooked, [flags = arrived_.get(), place](int i) {
    flags[place[static_cast<std::size_t>(i)]].store(true, std::memory_order_relaxed);
  });
}

bool Freshness::is_fresh(std::size_t replica, std::size_t i) const {
  const One& it = one(replica, i);
  const at::Tensor& grad = it.parameter.grad();
  if (!grad.defined()) return false;
  // One that was frozen when the trainer was made has no hook: any gradient will do.
  if (!it.hooked || arrived_[replica * count_ + i].load(std::memory_order_relaxed)) return true;
  return grad.has_storage() &&
         it.seen._unsafe_get_target() != grad.storage().unsafeGetStorageImpl();
}

void Freshness::forget() {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    arrived_[i].store(false, std::memory_order_relaxed);
    all_[i].seen = memory_of(all_[i].parameter.grad());
  }
}

}  // namespace mezzo::gluon
