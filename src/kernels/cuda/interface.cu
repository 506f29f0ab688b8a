// The table that the library gives out.
#include "kernels/cuda/interface.h"

#include <string>

#include "kernels/cuda/batch_norms.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/list.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/reductions.cuh"
#include "kernels/cuda/split.cuh"
#include "kernels/cuda/steps.cuh"

namespace mezzo::kernels::cuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

int device_count() {
  int count = 0;
  return succeeded(cudaGetDeviceCount(&count)) ? count : 0;
}

__global__ void nothing() {}

bool runs_on(int device) {
  const OnDevice on(device);
  cudaFuncAttributes of_nothing;
  return succeeded(cudaFuncGetAttributes(&of_nothing, nothing));
}

const char* error() {
  return cudaGetErrorString(last_error);
}

std::uint64_t capture(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  // The default stream answers with an error while another is captured.
  if (!succeeded(cudaStreamGetCaptureInfo(stream_of(stream), &status, &number))) return 0;
  return status == cudaStreamCaptureStatusNone ? 0 : number + 1;
}

List* make_list(int device) {
  return new List(device);
}

void free_list(List* list) {
  if (list == nullptr) return;
  const OnDevice on(list->device());
  delete list;
}

constexpr Interface kInterface{
    .version = kInterfaceVersion,
    .device_count = device_count,
    .runs_on = runs_on,
    .error = error,
    .capture = capture,
    .make_list = make_list,
    .free_list = free_list,
    .check = check,
    .norm = norm,
    .scale = scale,
    .axpby = axpby,
    .copy = copy,
    .copy_if = copy_if,
    .join_masters = join_masters,
    .split_masters = split_masters,
    .update_scale = update_scale_on,
    .adam = adam,
    .sgd = sgd,
    .adagrad = adagrad,
    .lamb = lamb,
    .novograd = novograd,
    .norm_forward = norm_forward,
    .norm_scratch = norm_scratch,
    .norm_backward = norm_backward,
    .batch_scratch = batch_scratch,
    .batch_moments = batch_moments,
    .batch_merge = batch_merge,
    .batch_normalise = batch_normalise,
    .batch_backward_reduce = batch_backward_reduce,
    .batch_backward_apply = batch_backward_apply,
};

}  // namespace

bool succeeded(cudaError_t error) {
  if (error == cudaSuccess) return true;
  last_error = error;
  cudaGetLastError();  // reported now: the next call must not take it for its own
  return false;
}

OnDevice::OnDevice(int device) {
  int current = -1;
  if (!succeeded(cudaGetDevice(&current)) || current == device) return;
  if (succeeded(cudaSetDevice(device))) before_ = current;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace mezzo::kernels::cuda

extern "C" __attribute__((visibility("default"))) const mezzo::kernels::cuda::Interface*
mezzo_cuda_interface(std::uint32_t version) {
  using namespace mezzo::kernels::cuda;
  return version == kInterfaceVersion ? &kInterface : nullptr;
}
