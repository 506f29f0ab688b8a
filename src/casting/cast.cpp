#include "casting/cast.h"

#include <ATen/ops/to.h>

#include "casting/counts.h"
#include "casting/rounding.h"
#include "casting/row.h"
#include "casting/scope.h"
#include "casting/shadow_cache.h"
#include "casting/weight_shadows.h"

namespace mezzo::casting {

at::Tensor Casting::cast(const at::Tensor& tensor) {
  const bool emulate = decision_.plan == Plan::kEmulate;
  if (frame_.listener != nullptr)
    (*frame_.listener)(row_.name(), tensor.scalar_type(), decision_.target);
  if (decision_.target != at::kFloat) {
    const ShadowKind kind{decision_.target, emulate};
    at::Tensor shadow = WeightShadows::global().use(tensor, kind, frame_.shadows);
    if (shadow.defined()) return shadow;
  }
  count_activation_cast();
  return emulate ? rounded(tensor, decision_.target) : tensor.to(decision_.target);
}

at::Tensor Casting::apply(const at::Tensor& tensor) {
  // Frames with a listener have no shadows, so that it hears of each use.
  if (frame_.shadows != nullptr && decision_.target != at::kFloat) {
    at::Tensor shadow =
        frame_.shadows->find(tensor, {decision_.target, decision_.plan == Plan::kEmulate});
    if (shadow.defined()) return shadow;
  }
  at::Tensor result = cast(tensor);
  same_keys_ = same_keys_ && result.key_set() == tensor.key_set();
  return result;
}

}  // namespace mezzo::casting
