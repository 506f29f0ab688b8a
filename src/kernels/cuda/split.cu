#include "kernels/cuda/split.cuh"

#include "kernels/cuda/launch.cuh"

namespace mezzo::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) join_kernel(StepRow row, float* masters) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= row.count) return;
  float master[1];
  Split{row.remainder, row.ties}.load(row.param, i, master);
  masters[i] = master[0];
}

__global__ void __launch_bounds__(kThreads) split_kernel(StepRow row, const float* masters) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= row.count) return;
  const float master[1] = {masters[i]};
  Split{row.remainder, row.ties}.store(row.param, i, master);
}

template <typename Masters>
bool run(const StepRow& row, Masters* masters, int device, Stream stream,
         void (*kernel)(StepRow, Masters*)) {
  if (row.count == 0) return true;
  const OnDevice on(device);
  launch(stream_of(stream), blocks_for(row.count, kThreads), kThreads, kernel, row, masters);
  return succeeded(cudaGetLastError());
}

}  // namespace

bool join_masters(const StepRow* row, float* masters, int device, Stream stream) {
  return run(*row, masters, device, stream, join_kernel);
}

bool split_masters(const StepRow* row, const float* masters, int device, Stream stream) {
  return run(*row, masters, device, stream, split_kernel);
}

}  // namespace mezzo::kernels::cuda
