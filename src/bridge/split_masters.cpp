#include "bridge/split_masters.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "kernels/cuda_library.h"
#include "kernels/multi_tensor.h"

namespace mezzo::bridge {
namespace {

kernels::StepRow row_of_split(const at::Tensor& weight, const SplitRest& rest) {
  kernels::StepRow row;
  row.param = weight.mutable_data_ptr();
  row.param_dtype = DType::kBFloat16;
  row.remainder = rest.remainder.mutable_data_ptr();
  row.ties = static_cast<std::uint32_t*>(rest.ties.mutable_data_ptr());
  row.count = weight.numel();
  return row;
}

}  // namespace

bool can_split(const at::Tensor& weight) {
  return weight.scalar_type() == at::kBFloat16 && weight.layout() == at::kStrided &&
         is_dense(weight) && has_kernels(weight.device(), Family::kSplitMasters) &&
         has_kernels(weight.device(), Family::kSteps);
}

SplitRest split_master(const at::Tensor& master, const at::Tensor& weight) {
  const auto options = weight.options().requires_grad(false);
  SplitRest rest{empty_laid_out_as(weight, at::kShort),
                 at::empty({kernels::words_of_ties(weight.numel())}, options.dtype(at::kInt))};
  if (weight.numel() == 0) return rest;
  const kernels::StepRow row = row_of_split(weight, rest);
  const auto* const from = static_cast<const float*>(master.const_data_ptr());
  const at::Device device = weight.device();
  if (const auto* cuda = cuda_kernels(device, Family::kSplitMasters)) {
    const c10::DeviceGuard guard(device);
    const bool done = cuda->split_masters(&row, from, index_of(device), current_stream(device));
    kernels::check_cuda(*cuda, done, "split");
  } else {
    kernels::Lists lists(torch_workers());
    lists.split_masters({&row, 1}, {&from, 1});
  }
  return rest;
}

at::Tensor join_master(const at::Tensor& weight, const SplitRest& rest) {
  at::Tensor master = empty_laid_out_as(weight, at::kFloat);
  if (weight.numel() == 0) return master;
  const kernels::StepRow row = row_of_split(weight, rest);
  auto* const to = static_cast<float*>(master.mutable_data_ptr());
  const at::Device device = weight.device();
  if (const auto* cuda = cuda_kernels(device, Family::kSplitMasters)) {
    const c10::DeviceGuard guard(device);
    const bool done = cuda->join_masters(&row, to, index_of(device), current_stream(device));
    kernels::check_cuda(*cuda, done, "join");
  } else {
    kernels::Lists lists(torch_workers());
    lists.join_masters({&row, 1}, {&to, 1});
  }
  return master;
}

at::Tensor without_memory(const at::Tensor& like, const std::string& why) {
  at::Tensor tensor = at::empty({0}, like.options().dtype(at::kFloat).requires_grad(false));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  tensor.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      why);
  return tensor;
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || !tensor.has_storage() || tensor.storage().nbytes() > 0;
}

}  // namespace mezzo::bridge
