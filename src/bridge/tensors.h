// Tensors as the kernels' memory: types, layouts, and how an error names a tensor.
#pragma once

#include <optional>
#include <string>

#include "bridge/family.h"
#include "core/dtype.h"
#include "core/torch.h"
#include "kernels/buffers.h"

namespace mezzo::bridge {

/// The kernels' name of a floating-point type; nothing for those that kernels do not compute with.
std::optional<DType> kernel_dtype(at::ScalarType) noexcept;

/// "Float [2, 3] on cpu".
std::string describe(const at::Tensor&);

/// Elements stand in memory as they are, without holes, in some order: contiguous, channels-last,
/// transposed. Not a view that negates, nor one without memory.
bool is_dense(const at::Tensor&);

/// The same values as they stand in memory: what a view negates is copied, zeros that have no
/// memory get some.
at::Tensor as_stored(const at::Tensor&);

/// Both dense and of the same sizes: does element i in memory mean the same in both?
bool same_layout(const at::Tensor& a, const at::Tensor& b);

/// Uninitialised, laid out as `like`, which is dense.
at::Tensor empty_laid_out_as(const at::Tensor& like, at::ScalarType dtype);

/// Refuses tensors that no function here takes: undefined, sparse, quantised, complex, integer.
/// `what` names the tensor in the error ("gradient 3").
DType check_floating_tensor(std::string_view where, const std::string& what, const at::Tensor&);

/// As above, and on a device that has kernels of a family (device.h): UnsupportedError elsewhere.
DType check_kernel_tensor(std::string_view where, const std::string& what, const at::Tensor&,
                          Family family = Family::kLists);

inline kernels::Input input_of(const at::Tensor& tensor, DType dtype) {
  return {tensor.const_data_ptr(), dtype, tensor.numel()};
}
inline kernels::Output output_of(const at::Tensor& tensor, DType dtype) {
  return {tensor.mutable_data_ptr(), dtype, tensor.numel()};
}

/// Tells autograd that a kernel wrote this tensor through its pointer.
void bump_version(const at::Tensor&);

}  // namespace mezzo::bridge
