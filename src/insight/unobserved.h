// Arithmetic from inside an observer.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/torch.h"

namespace mezzo::insight {

/// While it lives, operators of this thread are plain arithmetic: not recorded by autograd, not
/// cast, and not observed.
struct Unobserved {
  at::DisableRecordFunctionGuard silent;
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard uncast{c10::autocast_dispatch_keyset};
};

}  // namespace mezzo::insight
