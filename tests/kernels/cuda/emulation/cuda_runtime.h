// Stands in for CUDA's header where tests run the kernels' sources on the processor: each thread of
// a block is a fiber, barriers and shuffles switch between them. "Device" memory is ordinary memory
// that ends before a page nobody may touch and holds no number until a kernel writes one. Threads
// and blocks run in an order that a seed chooses, and the compiler checks alignment, bounds, shifts
// and overflows. Streams are the program's own affair: without a Runtime (runtime.h) everything
// runs at once. Speed is a GPU's to show.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
// Blocks run one after the other on one thread: what a block shares may be static.
#define __shared__ static

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900
};

namespace mezzo_emulated {

struct Place {
  dim3 thread, block, block_size, grid_size;
};
/// Where the running fiber stands.
const Place& place();
void barrier();
/// The number that the lane `lane ^ mask` of the same warp gave.
double exchange(double value, int mask);

/// Makes every launch fail from now on, or work again.
void break_launches(bool);
/// The same for what asks for device memory.
void run_out_of_memory(bool);
/// As if streams were being captured.
void set_capturing(bool);
/// What CUDA says of the code for a device.
void set_answer_on_code(cudaError_t);
/// Device memory that is held now, in pieces.
int pieces_of_memory();
int launches();

}  // namespace mezzo_emulated

#define threadIdx (mezzo_emulated::place().thread)
#define blockIdx (mezzo_emulated::place().block)
#define blockDim (mezzo_emulated::place().block_size)
#define gridDim (mezzo_emulated::place().grid_size)

inline void __syncthreads() {
  mezzo_emulated::barrier();
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return static_cast<T>(mezzo_emulated::exchange(static_cast<double>(value), mask));
}

// Fibers of one thread: nothing comes between.
inline std::uint32_t atomicOr(std::uint32_t* word, std::uint32_t bits) {
  return std::exchange(*word, *word | bits);
}
inline std::uint32_t atomicAnd(std::uint32_t* word, std::uint32_t bits) {
  return std::exchange(*word, *word & bits);
}

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

void mezzo_emulated_launch(cudaStream_t stream, dim3 grid, dim3 block,
                           std::function<void()> kernel);

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
#define CUDART_VERSION 13000

struct cudaFuncAttributes {};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*)());
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
/// Of the driver's functions the one that is asked for: cuDevicePrimaryCtxGetState.
constexpr unsigned long long cudaEnableDefault = 0;
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found);
