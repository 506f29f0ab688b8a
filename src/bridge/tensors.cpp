#include "bridge/tensors.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <sstream>

#include "bridge/device.h"
#include "core/scalar_type.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {

std::optional<DType> kernel_dtype(at::ScalarType type) noexcept {
  return is_network_type(type) ? dtype_of(type) : std::nullopt;
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream text;
  text << tensor.scalar_type() << ' ' << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

bool is_dense(const at::Tensor& tensor) {
  if (tensor.is_neg() || tensor._is_zerotensor()) return false;
  return tensor.is_contiguous() || tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

at::Tensor as_stored(const at::Tensor& tensor) {
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());
  return tensor.resolve_neg();
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return true;
  const auto sizes = a.sizes();
  const auto strides_a = a.strides();
  const auto strides_b = b.strides();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides_a[i] != strides_b[i]) return false;
  }
  return true;
}

at::Tensor empty_laid_out_as(const at::Tensor& like, at::ScalarType dtype) {
  return at::empty_strided(like.sizes(), like.strides(),
                           like.options().dtype(dtype).requires_grad(false));
}

DType check_floating_tensor(std::string_view where, const std::string& what,
                            const at::Tensor& tensor) {
  if (!tensor.defined()) raise<ConfigError>(where, what, " is undefined");
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    raise<ConfigError>(where, what, " (", describe(tensor), ") is ",
                       tensor.is_quantized() ? "quantised" : "not strided",
                       "; expected a dense tensor: make it one with dequantize() or to_dense()");
  }
  const std::optional<DType> dtype = kernel_dtype(tensor.scalar_type());
  if (!dtype) {
    raise<ConfigError>(where, what, " has type ", tensor.scalar_type(),
                       "; expected Float, Half, BFloat16 or Double");
  }
  return *dtype;
}

DType check_kernel_tensor(std::string_view where, const std::string& what, const at::Tensor& tensor,
                          Family family) {
  const DType dtype = check_floating_tensor(where, what, tensor);
  if (!has_kernels(tensor.device(), family)) {
    raise<UnsupportedError>(where, what, " is on ", tensor.device(),
                            ", for which there are no fused kernels here",
                            tensor.is_cuda() ? ": " + kernels::why_no_cuda_library() : "");
  }
  return dtype;
}

void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace mezzo::bridge
