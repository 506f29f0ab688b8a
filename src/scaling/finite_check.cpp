#include "scaling/finite_check.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>
#include <vector>

#include "bridge/host.h"
#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "core/raise.h"
#include "scaling/to_device.h"

namespace mezzo::scaling {
namespace {

/// Tensors that one call of LibTorch's operator accepts.
struct Batch {
  at::Device device;
  enum class Kind { kBFloat16, kDouble, kOther } kind;
  std::vector<at::Tensor> tensors;
};

at::Tensor dense_values(const at::Tensor& tensor) {
  const at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  return values.is_complex() ? at::view_as_real(values) : values;
}

Batch::Kind kind_of(const at::Tensor& values) {
  if (values.scalar_type() == at::kBFloat16) return Batch::Kind::kBFloat16;
  return values.scalar_type() == at::kDouble ? Batch::Kind::kDouble : Batch::Kind::kOther;
}

/// The number that a batch is multiplied by, where it is and in the type that it computes in.
at::Tensor inverse_for(const Batch& batch, const at::Tensor& inv_scale) {
  const bool is_double = batch.kind == Batch::Kind::kDouble;
  return to_device(inv_scale.to(is_double ? at::kDouble : at::kFloat), batch.device);
}

std::vector<Batch> batches_of(at::TensorList tensors) {
  std::vector<Batch> batches;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::Tensor values = dense_values(tensor);
    const Batch::Kind kind = kind_of(values);
    Batch* place = nullptr;
    for (Batch& batch : batches) {
      if (batch.device == values.device() && batch.kind == kind) place = &batch;
    }
    if (place == nullptr) {
      place = &batches.emplace_back(Batch{values.device(), kind, {}});
    }
    place->tensors.push_back(values);
  }
  return batches;
}

void raise_flag(at::Tensor& found_inf, const at::Tensor& other) {
  found_inf.copy_(
      at::maximum(found_inf, to_device(other, found_inf.device()).to(found_inf.scalar_type())));
}

/// LibTorch's operator refuses bfloat16 on CUDA, and writes; a norm that is not finite says as
/// much.
void check_by_norm(const Batch& batch, at::Tensor& found_inf) {
  std::vector<at::Tensor> tensors;  // the largest of no elements is an error to LibTorch
  for (const at::Tensor& tensor : batch.tensors) {
    if (tensor.numel() > 0) tensors.push_back(tensor);
  }
  if (tensors.empty()) return;
  const bool is_double = batch.kind == Batch::Kind::kDouble;
  const auto largest = at::_foreach_norm(tensors, std::numeric_limits<double>::infinity(),
                                         is_double ? at::kDouble : at::kFloat);
  raise_flag(found_inf, at::isfinite(at::stack(largest)).all().logical_not());
}

void check_and_unscale(const Batch& batch, const at::Tensor& inv_scale, at::Tensor& found_inf) {
  const at::Tensor inverse = inverse_for(batch, inv_scale);
  if (batch.kind == Batch::Kind::kBFloat16 && !batch.device.is_cpu()) {
    check_by_norm(batch, found_inf);
    at::_foreach_mul_(batch.tensors, inverse);
    return;
  }
  if (batch.kind == Batch::Kind::kDouble) {
    // The operator takes a float: it looks, and the exact number multiplies.
    const at::Tensor one = at::ones({}, inverse.options().dtype(at::kFloat));
    at::Tensor here = at::zeros_like(one);
    at::_amp_foreach_non_finite_check_and_unscale_(batch.tensors, here, one);
    raise_flag(found_inf, here);
    at::_foreach_mul_(batch.tensors, inverse);
    return;
  }
  if (batch.device == found_inf.device()) {
    at::_amp_foreach_non_finite_check_and_unscale_(batch.tensors, found_inf, inverse);
    return;
  }
  at::Tensor here = at::zeros_like(inverse);
  at::_amp_foreach_non_finite_check_and_unscale_(batch.tensors, here, inverse);
  raise_flag(found_inf, here);
}

void check_batch(const Batch& batch, at::Tensor& found_inf) {
  if (!bridge::is_host(batch.device)) return check_by_norm(batch, found_inf);
  std::vector<kernels::Input> inputs;
  std::vector<at::Tensor> laid_out_otherwise;  // what kernels do not read where it stands
  inputs.reserve(batch.tensors.size());
  for (const at::Tensor& tensor : batch.tensors) {
    const auto dtype = bridge::kernel_dtype(tensor.scalar_type());
    if (dtype && bridge::is_dense(tensor)) {
      inputs.push_back(bridge::input_of(tensor, *dtype));
    } else {
      laid_out_otherwise.push_back(tensor);
    }
  }
  const bool finite = kernels::Lists(bridge::torch_workers()).all_finite(inputs) &&
                      bridge::all_finite("check_finite", laid_out_otherwise);
  if (!finite) found_inf.fill_(1);
}

void check_sums_of_duplicates(at::TensorList tensors, at::Tensor& found_inf) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_sparse() || tensor.is_coalesced()) continue;
    if (tensor.scalar_type() != at::kHalf) continue;
    raise_flag(found_inf, at::isfinite(tensor.coalesce()._values()).all().logical_not());
  }
}

void check_layouts(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() == at::kStrided || tensor.is_sparse()) continue;
    raise<ConfigError>("unscale", "a gradient of shape ", tensor.sizes(), " has the layout ",
                       tensor.layout(), "; expected Strided or Sparse: convert it first, as by ",
                       "to_dense()");
  }
}

bool is_finite(const at::Tensor& tensor) {
  return at::isfinite(dense_values(tensor)).all().item<bool>();
}

}  // namespace

void unscale_and_check(at::TensorList tensors, const at::Tensor& inv_scale, at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  check_layouts(tensors);
  check_sums_of_duplicates(tensors, found_inf);
  for (const Batch& batch : batches_of(tensors)) check_and_unscale(batch, inv_scale, found_inf);
}

void unscale(at::TensorList tensors, const at::Tensor& inv_scale) {
  const at::NoGradGuard no_grad;
  check_layouts(tensors);
  for (const Batch& batch : batches_of(tensors)) {
    at::_foreach_mul_(batch.tensors, inverse_for(batch, inv_scale));
  }
}

void check_finite(at::TensorList tensors, at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  check_layouts(tensors);
  check_sums_of_duplicates(tensors, found_inf);
  for (const Batch& batch : batches_of(tensors)) check_batch(batch, found_inf);
}

std::size_t first_nonfinite(at::TensorList tensors) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() && !is_finite(tensors[i])) return i;
  }
  return tensors.size();
}

}  // namespace mezzo::scaling
