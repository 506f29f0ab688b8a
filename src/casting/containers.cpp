#include "mezzo/containers.h"

#include <ATen/ops/to.h>

namespace mezzo::amp {

at::Tensor TensorCast::operator()(const at::Tensor& tensor) const {
  if (!is_active() || !tensor.defined()) return tensor;
  const at::ScalarType type = tensor.scalar_type();
  if (type == to) return tensor;
  const bool touched = type == at::kFloat || type == at::kHalf || type == at::kBFloat16 ||
                       (doubles && type == at::kDouble);
  return touched ? tensor.to(to) : tensor;
}

}  // namespace mezzo::amp
