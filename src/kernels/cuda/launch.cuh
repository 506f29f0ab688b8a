// Launching kernels and passing on what CUDA reports.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#if !defined(__CUDACC__)
#include <tuple>
#endif

namespace mezzo::kernels::cuda {

/// Threads of a block, unless a kernel says otherwise.
constexpr int kThreads = 256;
constexpr int kWarp = 32;

/// Remembers an error for error(); was it none?
bool succeeded(cudaError_t);

template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
#if defined(__CUDACC__)
  kernel<<<grid, block, 0, stream>>>(static_cast<Parameters>(arguments)...);
#else
  // The tests run the same sources on the processor: tests/kernels/cuda/emulation. The arguments
  // are kept, as a queued kernel's are.
  mezzo_emulated_launch(
      stream, grid, block,
      [kernel, kept = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, kept); });
#endif
}

inline cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

/// Makes a device current while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace mezzo::kernels::cuda
