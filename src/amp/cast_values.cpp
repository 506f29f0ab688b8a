#include "mezzo/cast_values.h"

#include "amp/module_types.h"
#include "core/torch.h"

namespace mezzo::detail {

at::Tensor CastRule::cast(const at::Tensor& tensor) const {
  if (!is_active() || !tensor.defined()) return tensor;
  const at::ScalarType type = tensor.scalar_type();
  if (type == to) return tensor;
  const bool touched = type == at::kFloat || is_low(type) || (doubles_too && type == at::kDouble);
  return touched ? tensor.to(to) : tensor;
}

}  // namespace mezzo::detail
