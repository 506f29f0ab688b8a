// Whose kernels run on a device: the one place that decides between ours for CPUs, ours for CUDA,
// and LibTorch's operators.
#pragma once

#include <memory>

#include "core/torch.h"
#include "kernels/cuda/interface.h"
#include "kernels/norms.h"

namespace mezzo::bridge {

/// The CUDA kernels for this device; null on other devices, and where the library is not there.
const kernels::cuda::Interface* cuda_kernels(const at::Device&);

/// Are there kernels of ours for this device? Without, LibTorch's operators do the same.
bool has_kernels(const at::Device&);

/// The stream that LibTorch queues on now: a cudaStream_t; null for CPUs, which the tests treat as
/// devices.
kernels::cuda::Stream current_stream(const at::Device&);

/// A list of the CUDA library, given back at the end.
struct FreeCudaList {
  const kernels::cuda::Interface* cuda = nullptr;
  void operator()(kernels::cuda::List* list) const { cuda->free_list(list); }
};
using CudaList = std::unique_ptr<kernels::cuda::List, FreeCudaList>;
CudaList make_cuda_list(const kernels::cuda::Interface&, const at::Device&);

/// norms.h on the device that holds the memory, which has kernels. Scratch memory is allocated
/// there.
void norm_forward(const kernels::NormForward&, const at::Device&);
void norm_backward(const kernels::NormBackward&, const at::Device&);

}  // namespace mezzo::bridge
