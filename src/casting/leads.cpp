#include "casting/leads.h"

#include "core/scalar_type.h"

namespace mezzo::casting {
namespace {

bool is_parameter(const at::TensorBase& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

bool is_parameter_or_view(const at::Tensor& tensor) {
  return is_parameter(tensor) || (tensor.is_view() && is_parameter(tensor._base()));
}

}  // namespace

void LeadFinder::look(const at::Tensor& tensor, bool is_named_weight) {
  if (!tensor.defined()) return;
  const at::ScalarType type = tensor.scalar_type();
  if (!is_float_or_low(type)) return;
  if (!leads_.first) {
    leads_.first = type;
  } else {
    (is_low(type) ? leads_.low_later : leads_.float_later) = true;
  }
  if (named_ && !is_named_weight) return;
  if (!is_named_weight && (tensor.dim() <= dims_ || !is_parameter_or_view(tensor))) return;
  if (named_ && tensor.dim() <= dims_) return;
  named_ = is_named_weight;
  dims_ = tensor.dim();
  leads_.weight = type;
}

}  // namespace mezzo::casting
