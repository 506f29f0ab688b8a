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

void ShadowCache::put(const at::Tensor& weight, const std::shared_ptr<Shadow>& shadow) {
  const std::uintptr_t key = key_of(weight.unsafeGetTensorImpl(), shadow->kind());
  lines_[line_of(key)] = {key, shadow};
}

}  // namespace mezzo::casting
