#include "casting/cast.h"

#include <ATen/ops/to.h>

#include "casting/counts.h"
#include "casting/scope.h"
#include "casting/weight_shadows.h"
#include "casting/weights.h"

namespace mezzo::casting {
namespace {

at::Tensor recorded_cast(const at::Tensor& tensor, at::ScalarType to, bool emulate) {
  count_activation_cast();
  if (!emulate) return tensor.to(to);
  // Values of the low type in float storage; a tensor that is low already only widens.
  return tensor.scalar_type() == to ? tensor.to(at::kFloat) : tensor.to(to).to(at::kFloat);
}

}  // namespace

at::Tensor Casting::apply(const at::Tensor& tensor) const {
  const bool emulate = decision_.plan == Plan::kEmulate;
  if (frame_.listener != nullptr) (*frame_.listener)(op_, tensor.scalar_type(), decision_.target);
  const bool narrows = decision_.target == at::kHalf || decision_.target == at::kBFloat16;
  if (narrows && WeightKeeping::here()) {
    const ShadowKind kind{decision_.target, emulate};
    if (at::Tensor shadow = WeightShadows::global().use(tensor, kind); shadow.defined())
      return shadow;
  }
  return recorded_cast(tensor, decision_.target, emulate);
}

}  // namespace mezzo::casting
