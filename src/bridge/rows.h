// Tensors as the memory that row and batch norms read and write.
#pragma once

#include "bridge/tensors.h"
#include "kernels/norms.h"

namespace mezzo::bridge {

/// Null for an undefined tensor.
inline kernels::Rows rows_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.const_data_ptr(), *kernel_dtype(tensor.scalar_type())};
}

/// As above, to be written.
inline kernels::RowsOut rows_out_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.mutable_data_ptr(), *kernel_dtype(tensor.scalar_type())};
}

}  // namespace mezzo::bridge
