#include "bridge/device.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "bridge/workers.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

int index_of(const at::Device& device) {
  return device.has_index() ? device.index() : 0;
}

}  // namespace

const kernels::cuda::Interface* cuda_kernels(const at::Device& device) {
  return device.is_cuda() ? kernels::cuda_library() : nullptr;
}

bool has_kernels(const at::Device& device) {
  return device.is_cpu() || cuda_kernels(device) != nullptr;
}

kernels::cuda::Stream current_stream(const at::Device& device) {
  if (!device.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

CudaList make_cuda_list(const kernels::cuda::Interface& cuda, const at::Device& device) {
  kernels::cuda::List* list = cuda.make_list(index_of(device));
  kernels::check_cuda(cuda, list != nullptr, "list");
  return CudaList(list, FreeCudaList{&cuda});
}

void norm_forward(const kernels::NormForward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  if (cuda == nullptr) return kernels::norm_forward(norm, torch_workers());
  kernels::check_cuda(*cuda, cuda->norm_forward(&norm, index_of(device), current_stream(device)),
                      "norm");
}

void norm_backward(const kernels::NormBackward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  const std::int64_t numbers = cuda == nullptr ? kernels::norm_scratch(norm.shape)
                                               : cuda->norm_scratch(&norm.shape, index_of(device));
  const at::Tensor scratch = at::empty(
      {numbers}, at::TensorOptions(device).dtype(norm.shape.wide ? at::kDouble : at::kFloat));
  void* memory = scratch.mutable_data_ptr();
  if (cuda == nullptr) return kernels::norm_backward(norm, memory, torch_workers());
  kernels::check_cuda(
      *cuda, cuda->norm_backward(&norm, memory, index_of(device), current_stream(device)), "norm");
}

}  // namespace mezzo::bridge
