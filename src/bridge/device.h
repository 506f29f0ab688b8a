// The choice of kernels for a device, made in one place: ours for CPUs, ours for CUDA,
// and LibTorch's operators.
#pragma once

#include <cstdint>
#include <memory>

#include "bridge/family.h"
#include "core/torch.h"
#include "kernels/batch_norm.h"
#include "kernels/cuda/interface.h"
#include "kernels/elements.h"
#include "kernels/norms.h"

namespace mezzo::bridge {

class Proofs;

/// The kernels behind the CUDA library's interface for this device, if it has a family of them that
/// has proven itself there (proofs.h); null if not. The first question of a process proves the
/// family, unless the device's current stream is being captured: then the answer is null.
const kernels::cuda::Interface* cuda_kernels(const at::Device&, Family);

/// The proofs of the functions that are there for this device; null if there are none.
Proofs* proofs_on(const at::Device&);

/// The kernels for the devices of a type, for the process. Unless something is chosen: our
/// loops on CPUs, the CUDA library's on CUDA devices, LibTorch's operators on all others. One
/// choice for a type is everything that such a device may have: the interface of another build of
/// the CUDA sources (another vendor's devices, an emulation on CPUs), or null, with which
/// LibTorch's operators work there, to compare with or to rule our kernels out.
void choose_kernels(c10::DeviceType, const kernels::cuda::Interface*);

/// Takes back what was chosen for a type.
void choose_usual_kernels(c10::DeviceType);

/// Are there kernels of ours of a family for this device? Without, LibTorch's operators do the
/// same.
bool has_kernels(const at::Device&, Family);

/// The stream that LibTorch queues on now: a cudaStream_t; null for CPUs.
kernels::cuda::Stream current_stream(const at::Device&);

/// The capture of a graph that this stream takes part in, a number that no other capture of the
/// process has; 0: none. Work that is queued now runs when the graph is replayed, and not before.
std::uint64_t current_capture(const at::Device&);

/// A list of the CUDA library, given back at the end.
struct FreeCudaList {
  const kernels::cuda::Interface* cuda = nullptr;
  void operator()(kernels::cuda::List* list) const { cuda->free_list(list); }
};
using CudaList = std::unique_ptr<kernels::cuda::List, FreeCudaList>;
CudaList make_cuda_list(const kernels::cuda::Interface&, const at::Device&);

/// A flag as kernels of a device raise it: the given one where they can write it, else one of their
/// own, which merge() joins with it.
class DeviceFlag {
 public:
  DeviceFlag(at::Tensor& flag, const at::Device&);
  float* address() const { return raised_.mutable_data_ptr<float>(); }
  void merge();

 private:
  at::Tensor& flag_;
  at::Tensor raised_;
};

/// elements.h's update_scale() in one launch: a float and two ints on one device that has the CUDA
/// library's kernels, by a float there.
void update_scale(const at::Tensor& scale, const at::Tensor& unskipped, const at::Tensor& stuck,
                  const at::Tensor& found_inf, const kernels::ScaleRule&);

/// norms.h on the device that holds the memory, which has kernels. Scratch memory is allocated
/// there.
void norm_forward(const kernels::NormForward&, const at::Device&);
void norm_backward(const kernels::NormBackward&, const at::Device&);

/// batch_norm.h likewise; everything that the structures name is there.
void batch_moments(const kernels::Rows& x, const kernels::BatchShape&, const kernels::Moments&,
                   const at::Device&);
void batch_normalise(const kernels::BatchNormalise&, const at::Device&);
void batch_backward_reduce(const kernels::BatchGradient&, double* sum_dy, double* sum_dy_xmu,
                           const at::Device&);
void batch_backward_apply(const kernels::BatchBackwardApply&, const at::Device&);

/// Merges what ranks have gathered, a row of doubles each on the result's device: their means,
/// their sums of squared deviations, their count, and what else follows.
/// [2, C] on that device: means and sums. By the host if there are no kernels.
at::Tensor merge_moments(const at::Tensor& gathered, std::int64_t channels);

}  // namespace mezzo::bridge
