#include "kernels/cuda/norms.cuh"

#include "kernels/cuda/memory.cuh"

namespace mezzo::kernels::cuda {
namespace {

constexpr int kColumnsOfBlock = 32;
constexpr int kRowsOfBlock = 8;

/// Adds up the blocks' partial sums: y picks weight (0) or bias (1).
template <typename S>
__global__ void add_partial_sums(const S* partial, unsigned blocks, std::int64_t columns,
                                 S* dweight, S* dbias) {
  __shared__ S sums[kRowsOfBlock][kColumnsOfBlock];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
  S sum = 0;
  if (column < columns) {
    for (unsigned block = threadIdx.y; block < blocks; block += kRowsOfBlock) {
      sum += partial[(static_cast<std::int64_t>(block) * 2 + blockIdx.y) * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  S* to = blockIdx.y == 0 ? dweight : dbias;
  if (threadIdx.y != 0 || column >= columns || to == nullptr) return;
  for (int row = 1; row < kRowsOfBlock; ++row) sum += sums[row][threadIdx.x];
  to[column] = sum;
}

template <typename S>
void add_up(const NormBackward& n, const void* scratch, unsigned blocks, cudaStream_t stream) {
  if (n.dweight == nullptr && n.dbias == nullptr) return;
  launch(stream, dim3(blocks_for(n.shape.columns, kColumnsOfBlock), 2),
         dim3(kColumnsOfBlock, kRowsOfBlock), add_partial_sums<S>, static_cast<const S*>(scratch),
         blocks, n.shape.columns, static_cast<S*>(n.dweight), static_cast<S*>(n.dbias));
}

}  // namespace

unsigned norm_blocks(std::int64_t rows, int device) {
  constexpr int kBlocksPerProcessor = 3;
  int processors = 0;
  if (!succeeded(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) ||
      processors < 1) {
    processors = 1;
  }
  const std::int64_t most = static_cast<std::int64_t>(processors) * kBlocksPerProcessor;
  return static_cast<unsigned>(rows < most ? rows : most);
}

std::int64_t norm_scratch(const NormShape* shape, int device) {
  return 2 * static_cast<std::int64_t>(norm_blocks(shape->rows, device)) * shape->columns;
}

bool norm_forward(const NormForward* n, int device, Stream stream) {
  if (n->shape.rows == 0 || n->shape.columns == 0) return true;
  const OnDevice on(device);
  if (!norm_rows_forward(*n, stream_of(stream))) norm_any_forward(*n, stream_of(stream));
  return succeeded(cudaGetLastError());
}

bool norm_backward(const NormBackward* n, void* scratch, int device, Stream stream) {
  if (n->shape.columns == 0) return true;
  const OnDevice on(device);
  const unsigned blocks = norm_blocks(n->shape.rows, device);
  if (blocks > 0 &&
      !norm_rows_backward(*n, static_cast<float*>(scratch), blocks, stream_of(stream))) {
    norm_any_backward(*n, scratch, blocks, stream_of(stream));
  }
  n->shape.wide ? add_up<double>(*n, scratch, blocks, stream_of(stream))
                : add_up<float>(*n, scratch, blocks, stream_of(stream));
  return succeeded(cudaGetLastError());
}

}  // namespace mezzo::kernels::cuda
