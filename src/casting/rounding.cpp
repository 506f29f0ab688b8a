#include "casting/rounding.h"

#include <ATen/ops/to.h>

namespace mezzo::casting {

at::Tensor rounded(const at::Tensor& tensor, at::ScalarType low) {
  return (tensor.scalar_type() == low ? tensor : tensor.to(low)).to(at::kFloat);
}

}  // namespace mezzo::casting
