#include "kernels/cuda/norm_rows.cuh"

namespace mezzo::kernels::cuda {
namespace {

/// Weight and bias of a thread's pack.
struct Affine {
  float weight[kPack];
  float bias[kPack] = {};

  __device__ Affine(const NormBackward& n, std::int64_t column) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) weight[k] = 1;
    if (n.weight.data != nullptr) Any{n.weight.dtype}.load(n.weight.data, column, weight);
    if (n.from_output && n.bias.data != nullptr) {
      Any{n.bias.dtype}.load(n.bias.data, column, bias);
    }
  }
  /// The normalised value, from the row or from the result.
  __device__ float normalised(const NormBackward& n, int k, float x, float mean, float rstd) const {
    if (!n.from_output) return (x - mean) * rstd;
    if (n.weight.data == nullptr) return x - bias[k];
    return (x - bias[k]) / away_from_zero(weight[k], static_cast<float>(n.smallest_weight));
  }
};

/// The sums over a block's rows, columns of the same thread: of the warps that take other rows too,
/// one after the other, so that the order is always the same.
template <int kLanes>
__device__ void leave_sums(const float (&dweight)[kPacks][kPack],
                           const float (&dbias)[kPacks][kPack], std::int64_t columns,
                           float* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int turns = kThreadsFor<kLanes> / kLanes;
  float* to = scratch + static_cast<std::int64_t>(blockIdx.x) * 2 * columns;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn == static_cast<int>(threadIdx.x) / kLanes) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t column = column_of<kLanes>(lane, p);
        if (column >= columns) continue;
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          float* weight_sum = to + column + k;
          float* bias_sum = to + columns + column + k;
          *weight_sum = turn == 0 ? dweight[p][k] : *weight_sum + dweight[p][k];
          *bias_sum = turn == 0 ? dbias[p][k] : *bias_sum + dbias[p][k];
        }
      }
    }
    __syncthreads();
  }
}

/// Does a thread hold what it has read of a row until the second pass? Where registers do not
/// suffice for that beside the sums, the row is read again, from a cache: memory on the stack would
/// take as many bytes there and back.
template <typename T, typename R, int kLanes>
constexpr bool kHoldsRow = kLanes < 512 && sizeof(T) + sizeof(R) < 8;

template <typename T>
__device__ Pack<T, kPack> pack_of(const void* matrix, std::int64_t element) {
  return *reinterpret_cast<const Pack<T, kPack>*>(static_cast<const T*>(matrix) + element);
}

/// T: of dy; R: of the normalised row, dx and dsum.
template <typename T, typename R, int kLanes>
__global__ void __launch_bounds__(kThreadsFor<kLanes>, kLanes < 512 ? 3 : 1)
    backward(NormBackward n, float* scratch) {
  constexpr int kRowsAtOnce = kThreadsFor<kLanes> / kLanes;
  const std::int64_t columns = n.shape.columns;
  const float count = static_cast<float>(columns);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float dweight[kPacks][kPack] = {};
  float dbias[kPacks][kPack] = {};
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kRowsAtOnce + threadIdx.x / kLanes;
  for (std::int64_t row = first; row < n.shape.rows;
       row += static_cast<std::int64_t>(gridDim.x) * kRowsAtOnce) {
    const std::int64_t begin = row * columns;
    const float rstd = static_cast<const float*>(n.rstd)[row];
    const float mean = n.mean == nullptr ? 0.0f : static_cast<const float*>(n.mean)[row];
    constexpr bool kHolds = kHoldsRow<T, R, kLanes>;
    Pack<R, kPack> x[kPacks];  // as they are in memory, to hold more of them
    Pack<T, kPack> dy[kPacks];
    if constexpr (kHolds) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t column = column_of<kLanes>(lane, p);
        if (column >= columns) continue;
        x[p] = pack_of<R>(n.x.data, begin + column);
        dy[p] = pack_of<T>(n.dy.data, begin + column);
      }
    }
    float with_normalised = 0;
    float alone = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = column_of<kLanes>(lane, p);
      if (column >= columns) continue;
      if constexpr (!kHolds) {
        x[p] = pack_of<R>(n.x.data, begin + column);
        dy[p] = pack_of<T>(n.dy.data, begin + column);
      }
      const Affine affine(n, column);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const float g = widen(dy[p].of[k]);
        const float hat = affine.normalised(n, k, widen(x[p].of[k]), mean, rstd);
        const float weighted = g * affine.weight[k];
        with_normalised += weighted * hat;
        alone += weighted;
        dweight[p][k] += g * hat;
        dbias[p][k] += g;
      }
    }
    const float along = row_sum<kLanes>(with_normalised) / count;
    const float average = n.shape.rms ? 0.0f : row_sum<kLanes>(alone) / count;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = column_of<kLanes>(lane, p);
      if (column >= columns) continue;
      if constexpr (!kHolds) {
        x[p] = pack_of<R>(n.x.data, begin + column);
        dy[p] = pack_of<T>(n.dy.data, begin + column);
      }
      const Affine affine(n, column);
      float dx[kPack];
      float dsum[kPack] = {};
      if (n.dsum.data != nullptr) load<R, kPack>(n.dsum.data, begin + column, dsum);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const float hat = affine.normalised(n, k, widen(x[p].of[k]), mean, rstd);
        const float weighted = widen(dy[p].of[k]) * affine.weight[k];
        dx[k] = (weighted - hat * along - average) * rstd + dsum[k];
      }
      store<R, kPack>(n.dx.data, begin + column, dx);
    }
  }
  leave_sums<kLanes>(dweight, dbias, columns, scratch);
}

template <typename T, typename R, int kLanes>
void run(const NormBackward& n, float* scratch, unsigned blocks, cudaStream_t stream) {
  launch(stream, blocks, kThreadsFor<kLanes>, backward<T, R, kLanes>, n, scratch);
}

}  // namespace

bool norm_rows_backward(const NormBackward& n, float* scratch, unsigned blocks,
                        cudaStream_t stream) {
  const int lanes = lanes_for(n.shape.columns);
  const DType wide = n.x.dtype;
  const bool fits =
      lanes != 0 && !n.shape.wide && n.dx.dtype == wide && row_packable(n.dy.data, n.dy.dtype) &&
      row_packable(n.x.data, wide) && row_packable(n.dx.data, wide) &&
      row_packable(n.weight.data, n.weight.dtype) && row_packable(n.bias.data, n.bias.dtype) &&
      (n.dsum.data == nullptr || (n.dsum.dtype == wide && row_packable(n.dsum.data, wide)));
  if (!fits) return false;
  return with_row_types(n.dy.dtype, wide, [&](auto type, auto wide_type) {
    using T = decltype(type);
    using R = decltype(wide_type);
    switch (lanes) {
      case 32:
        return run<T, R, 32>(n, scratch, blocks, stream);
      case 128:
        return run<T, R, 128>(n, scratch, blocks, stream);
      default:
        return run<T, R, 512>(n, scratch, blocks, stream);
    }
  });
}

}  // namespace mezzo::kernels::cuda
