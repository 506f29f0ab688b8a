#include "kernels/cuda/norm_rows.cuh"

namespace mezzo::kernels::cuda {
namespace {

/// T: of x and y; R: of the residual and the sum.
template <typename T, typename R, int kLanes>
__global__ void __launch_bounds__(kThreadsFor<kLanes>) forward(NormForward n) {
  const std::int64_t columns = n.shape.columns;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreadsFor<kLanes> / kLanes) + threadIdx.x / kLanes;
  if (row >= n.shape.rows) return;  // whole warps: no sum misses them
  const std::int64_t begin = row * columns;
  float x[kPacks][kPack] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::int64_t column = column_of<kLanes>(lane, p);
    if (column < columns) load<T, kPack>(n.x.data, begin + column, x[p]);
  }
  if (n.residual.data != nullptr) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = column_of<kLanes>(lane, p);
      if (column >= columns) continue;
      float residual[kPack];
      load<R, kPack>(n.residual.data, begin + column, residual);
#pragma unroll
      for (int k = 0; k < kPack; ++k) x[p][k] = widen(Narrow<R>::of(x[p][k] + residual[k]));
      store<R, kPack>(n.sum.data, begin + column, x[p]);
    }
  }
  const float count = static_cast<float>(columns);
  float mean = 0;
  if (!n.shape.rms) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum += x[p][k];  // zeros behind the end
    }
    mean = row_sum<kLanes>(sum) / count;
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column_of<kLanes>(lane, p) >= columns) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += (x[p][k] - mean) * (x[p][k] - mean);
  }
  const float variance = row_sum<kLanes>(squares) / count;
  const float rstd = 1.0f / square_root(variance + static_cast<float>(n.shape.eps));
  if (lane == 0) {
    if (n.mean != nullptr) static_cast<float*>(n.mean)[row] = mean;
    if (n.rstd != nullptr) static_cast<float*>(n.rstd)[row] = rstd;
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::int64_t column = column_of<kLanes>(lane, p);
    if (column >= columns) continue;
    float weight[kPack];
    float bias[kPack] = {};
    if (n.weight.data != nullptr) Any{n.weight.dtype}.load(n.weight.data, column, weight);
    if (n.bias.data != nullptr) Any{n.bias.dtype}.load(n.bias.data, column, bias);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const float hat = (x[p][k] - mean) * rstd;
      x[p][k] = (n.weight.data == nullptr ? hat : hat * weight[k]) + bias[k];
    }
    store<T, kPack>(n.y.data, begin + column, x[p]);
  }
}

template <typename T, typename R, int kLanes>
void run(const NormForward& n, cudaStream_t stream) {
  launch(stream, blocks_for(n.shape.rows, kThreadsFor<kLanes> / kLanes), kThreadsFor<kLanes>,
         forward<T, R, kLanes>, n);
}

}  // namespace

bool norm_rows_forward(const NormForward& n, cudaStream_t stream) {
  const int lanes = lanes_for(n.shape.columns);
  const bool adds = n.residual.data != nullptr;
  const DType wide = adds ? n.residual.dtype : n.x.dtype;
  bool fits = lanes != 0 && !n.shape.wide && n.y.dtype == n.x.dtype &&
              row_packable(n.x.data, n.x.dtype) && row_packable(n.y.data, n.y.dtype) &&
              row_packable(n.weight.data, n.weight.dtype) &&
              row_packable(n.bias.data, n.bias.dtype);
  if (adds) {
    fits = fits && n.sum.dtype == wide && row_packable(n.residual.data, wide) &&
           row_packable(n.sum.data, wide);
  }
  if (!fits) return false;
  return with_row_types(n.x.dtype, wide, [&](auto type, auto wide_type) {
    using T = decltype(type);
    using R = decltype(wide_type);
    switch (lanes) {
      case 32:
        return run<T, R, 32>(n, stream);
      case 128:
        return run<T, R, 128>(n, stream);
      default:
        return run<T, R, 512>(n, stream);
    }
  });
}

}  // namespace mezzo::kernels::cuda
