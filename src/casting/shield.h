// Casts off for what one operator calls inside itself.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace mezzo::casting {

#if defined(_MSC_VER)
class Shield {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};
#else
/// LibTorch's ExcludeDispatchKeyGuard for all autocast keys, without its two calls: every listed
/// operator passes here.
class Shield {
 public:
  Shield() : state_(&c10::impl::raw_local_dispatch_key_set), excluded_(state_->excluded_) {
    state_->set_excluded(state_->excluded() | c10::autocast_dispatch_keyset);
  }
  ~Shield() { state_->excluded_ = excluded_; }
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;

 private:
  c10::impl::PODLocalDispatchKeySet* state_;
  std::uint64_t excluded_;
};
#endif

}  // namespace mezzo::casting
