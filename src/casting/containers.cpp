#include "mezzo/containers.h"

#include <ATen/ops/to.h>

namespace mezzo::amp {

at::Tensor TensorCast::operator()(const at::Tensor& tensor) const {
  if (to == at::ScalarType::Undefined || !tensor.defined()) return tensor;
  const at::ScalarType type = tensor.scalar_type();
  if (!at::isFloatingType(type) || type == to || (type == at::kDouble && !doubles)) return tensor;
  return tensor.to(to);
}

}  // namespace mezzo::amp
