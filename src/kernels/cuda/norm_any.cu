// One block a row, any types and sizes. A row is read from memory once and from the cache after
// that.
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mezzo::kernels::cuda {
namespace {

template <typename S>
__device__ S value_at(const Rows& rows, std::int64_t i) {
  S value[1];
  Any{rows.dtype}.load(rows.data, i, value);
  return value[0];
}
template <typename S>
__device__ S value_or(const Rows& row, std::int64_t i, S otherwise) {
  return row.data == nullptr ? otherwise : value_at<S>(row, i);
}
template <typename S>
__device__ void set_at(const RowsOut& rows, std::int64_t i, S value) {
  const S values[1] = {value};
  Any{rows.dtype}.store(rows.data, i, values);
}

template <typename S>
__device__ void forward_row(const NormForward& n, std::int64_t row) {
  const std::int64_t columns = n.shape.columns;
  const std::int64_t begin = row * columns;
  Rows x = n.x;
  S sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
    if (n.residual.data != nullptr) {
      set_at(n.sum, begin + i, value_at<S>(n.x, begin + i) + value_at<S>(n.residual, begin + i));
    }
  }
  if (n.residual.data != nullptr) x = {n.sum.data, n.sum.dtype};
  // Every thread reads what it wrote itself.
  for (std::int64_t i = threadIdx.x; i < columns && !n.shape.rms; i += kThreads) {
    sum += value_at<S>(x, begin + i);
  }
  const S count = static_cast<S>(columns);
  const S mean = n.shape.rms ? S(0) : block_reduce<Sum, kThreads>(sum, S(0)) / count;
  S squares = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const S d = value_at<S>(x, begin + i) - mean;
    squares += d * d;
  }
  const S variance = block_reduce<Sum, kThreads>(squares, S(0)) / count;
  const S rstd = S(1) / square_root(variance + static_cast<S>(n.shape.eps));
  if (threadIdx.x == 0) {
    if (n.mean != nullptr) static_cast<S*>(n.mean)[row] = mean;
    if (n.rstd != nullptr) static_cast<S*>(n.rstd)[row] = rstd;
  }
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const S hat = (value_at<S>(x, begin + i) - mean) * rstd;
    set_at(n.y, begin + i, hat * value_or(n.weight, i, S(1)) + value_or(n.bias, i, S(0)));
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads) forward(NormForward n) {
  for (std::int64_t row = blockIdx.x; row < n.shape.rows; row += gridDim.x) forward_row<S>(n, row);
}

/// The normalised value, from the row or from the result.
template <typename S>
__device__ S normalised(const NormBackward& n, std::int64_t begin, std::int64_t i, S mean, S rstd) {
  const S x = value_at<S>(n.x, begin + i);
  if (!n.from_output) return (x - mean) * rstd;
  const S without_bias = x - value_or(n.bias, i, S(0));
  if (n.weight.data == nullptr) return without_bias;
  return without_bias / away_from_zero(value_at<S>(n.weight, i), static_cast<S>(n.smallest_weight));
}

template <typename S>
__global__ void __launch_bounds__(kThreads) backward(NormBackward n, S* scratch) {
  const std::int64_t columns = n.shape.columns;
  S* dweight = scratch + static_cast<std::int64_t>(blockIdx.x) * 2 * columns;
  S* dbias = dweight + columns;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) dweight[i] = dbias[i] = 0;
  for (std::int64_t row = blockIdx.x; row < n.shape.rows; row += gridDim.x) {
    const std::int64_t begin = row * columns;
    const S rstd = static_cast<const S*>(n.rstd)[row];
    const S mean = n.mean == nullptr ? S(0) : static_cast<const S*>(n.mean)[row];
    S with_normalised = 0;
    S alone = 0;
    for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const S g = value_at<S>(n.dy, begin + i);
      const S hat = normalised(n, begin, i, mean, rstd);
      const S weighted = g * value_or(n.weight, i, S(1));
      with_normalised += weighted * hat;
      alone += weighted;
      dweight[i] += g * hat;
      dbias[i] += g;
    }
    const S count = static_cast<S>(columns);
    const S along = block_reduce<Sum, kThreads>(with_normalised, S(0)) / count;
    const S average = n.shape.rms ? S(0) : block_reduce<Sum, kThreads>(alone, S(0)) / count;
    for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const S weighted = value_at<S>(n.dy, begin + i) * value_or(n.weight, i, S(1));
      const S hat = normalised(n, begin, i, mean, rstd);
      const S dx = (weighted - hat * along - average) * rstd;
      set_at(n.dx, begin + i, dx + value_or(n.dsum, begin + i, S(0)));
    }
  }
}

}  // namespace

void norm_any_forward(const NormForward& n, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;  // a grid has fewer than 2^31
  const std::int64_t blocks = n.shape.rows < kMostBlocks ? n.shape.rows : kMostBlocks;
  launch(stream, static_cast<unsigned>(blocks), kThreads,
         n.shape.wide ? forward<double> : forward<float>, n);
}

void norm_any_backward(const NormBackward& n, void* scratch, unsigned blocks, cudaStream_t stream) {
  if (n.shape.wide) {
    launch(stream, blocks, kThreads, backward<double>, n, static_cast<double*>(scratch));
  } else {
    launch(stream, blocks, kThreads, backward<float>, n, static_cast<float*>(scratch));
  }
}

}  // namespace mezzo::kernels::cuda
