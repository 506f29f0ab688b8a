#include "casting/cast.h"

#include <ATen/ops/to.h>

#include "casting/counts.h"
#include "casting/rounding.h"
#include "casting/row.h"
#include "casting/scope.h"
#include "casting/shadow_cache.h"
#include "casting/weight_shadows.h"

namespace mezzo::casting {

C10_NOINLINE at::Tensor Casting::cast(const at::Tensor& tensor) {
  const bool emulate = decision_.plan == Plan::kEmulate;
  const at::ScalarType to = decision_.plan == Plan::kInFloat ? at::kFloat : decision_.target;
  if (frame_.listener != nullptr) (*frame_.listener)(row_.name(), tensor.scalar_type(), to);
  at::Tensor result;
  if (to != at::kFloat && frame_.keeps_weights) {
    const ShadowKind kind{to, emulate};
    result = WeightShadows::global().use(tensor, kind, frame_.shadows_for(decision_));
  }
  if (!result.defined()) {
    count_activation_cast();
    result = emulate ? rounded(tensor, to) : tensor.to(to);
  }
  same_keys_ = same_keys_ && result.key_set() == tensor.key_set();
  return result;
}

at::Tensor Casting::apply(const at::Tensor& tensor) {
  using Reference = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  const ShadowCache* const shadows = frame_.shadows_for(decision_);
  c10::TensorImpl* const copy = shadows != nullptr ? shadows->copy_of(tensor) : nullptr;
  return copy != nullptr ? at::Tensor(Reference::reclaim(copy)) : cast(tensor);
}

}  // namespace mezzo::casting
