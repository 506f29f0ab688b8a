#include "casting/cast.h"

#include <ATen/ops/to.h>

#include "casting/counts.h"
#include "casting/rounding.h"
#include "casting/row.h"
#include "casting/scope.h"
#include "casting/shadow_cache.h"
#include "casting/weight_shadows.h"
#include "casting/weights.h"

namespace mezzo::casting {

C10_NOINLINE at::Tensor Casting::cast(const at::Tensor& tensor) {
  const bool emulate = decision_.plan == Plan::kEmulate;
  if (frame_.listener != nullptr)
    (*frame_.listener)(row_.name(), tensor.scalar_type(), decision_.target);
  at::Tensor result;
  if (decision_.target != at::kFloat && WeightKeeping::here()) {
    const ShadowKind kind{decision_.target, emulate};
    result = WeightShadows::global().use(tensor, kind, frame_.shadows);
  }
  if (!result.defined()) {
    count_activation_cast();
    result = emulate ? rounded(tensor, decision_.target) : tensor.to(decision_.target);
  }
  same_keys_ = same_keys_ && result.key_set() == tensor.key_set();
  return result;
}

at::Tensor Casting::apply(const at::Tensor& tensor) {
  // Frames with a listener have no shadows, so that it hears of each use.
  if (frame_.shadows != nullptr && decision_.target != at::kFloat) {
    const ShadowCache::Found found =
        frame_.shadows->find(tensor, {decision_.target, decision_.plan == Plan::kEmulate});
    if (const Shadow::Lock lock(found.shadow); lock) {
      const at::Tensor* copy =
          found.shadow->peek(*tensor.unsafeGetTensorImpl(), *found.weight, found.use);
      if (copy != nullptr) return *copy;
    }
  }
  return cast(tensor);
}

}  // namespace mezzo::casting
