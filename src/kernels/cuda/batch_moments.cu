// Moments of a batch: each thread runs Welford's method (1962) over its elements, in distances from
// the first one, so that a mean far from 0 costs nothing; what threads, blocks and ranks have is
// merged in double by Chan's rule, in an order that depends on the shape and the device alone.
#include "kernels/cuda/batch_norms.cuh"

namespace mezzo::kernels::cuda {
namespace {

/// Moments of some elements; none: zeros.
struct CountedMoments {
  double count, mean, m2;
};

__device__ CountedMoments joined(CountedMoments a, const CountedMoments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  merge_into(a.mean, a.m2, b.mean, b.m2, merge_weights(a.count, b.count));
  a.count += b.count;
  return a;
}

template <typename S>
struct RunningMoments {
  S near = 0;
  S mean = 0;  // of the distances from `near`
  S m2 = 0;

  /// `inverse`: one over the count, this number included.
  __device__ void add(S x, bool first, S inverse) {
    if (first) near = x;
    const S distance = x - near;
    const S apart = distance - mean;
    mean += apart * inverse;
    m2 += apart * (distance - mean);
  }
  __device__ CountedMoments counted(int count) const {
    if (count == 0) return {0, 0, 0};
    return {static_cast<double>(count), static_cast<double>(near) + static_cast<double>(mean),
            static_cast<double>(m2)};
  }
};

template <typename S, typename X>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(Rows x, BatchCut cut, CountedMoments* of_piece) {
  constexpr int kWidth = kBatchWidth<X>;
  const X access = access_to<X>(x.dtype);
  RunningMoments<S> running[kWidth];
  int count = 0;
  for_batch<kWidth>(cut, [&](auto elements, std::int64_t i) {
    constexpr int N = decltype(elements)::value;
    S values[N];
    access.load(x.data, i, values);
    ++count;
    const S inverse = S(1) / static_cast<S>(count);
#pragma unroll
    for (int k = 0; k < N; ++k) running[k].add(values[k], count == 1, inverse);
  });
  CountedMoments mine[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) mine[k] = running[k].counted(k < cut.width ? count : 0);
  leave_partial(cut, mine, of_piece);
}

__global__ void __launch_bounds__(kThreads)
    join_moments(const CountedMoments* of_piece, std::int64_t pieces, std::int64_t channels,
                 Moments to) {
  const std::int64_t c =
      static_cast<std::int64_t>(blockIdx.x) * kChannelsAtEnd + threadIdx.x % kChannelsAtEnd;
  const auto all = join_pieces<CountedMoments>(
      pieces, c < channels, [&](std::int64_t p) { return of_piece[p * channels + c]; });
  if (threadIdx.x >= kChannelsAtEnd || c >= channels) return;
  to.mean[c] = all.mean;
  to.m2[c] = all.m2;
}

__global__ void __launch_bounds__(kThreads)
    join_ranks(const double* of_ranks, std::int64_t ranks, std::int64_t stride,
               std::int64_t channels, Moments to) {
  const std::int64_t c =
      static_cast<std::int64_t>(blockIdx.x) * kChannelsAtEnd + threadIdx.x % kChannelsAtEnd;
  const auto all = join_pieces<CountedMoments>(ranks, c < channels, [&](std::int64_t r) {
    const double* rank = of_ranks + r * stride;
    return CountedMoments{rank[2 * channels], rank[c], rank[channels + c]};
  });
  if (threadIdx.x >= kChannelsAtEnd || c >= channels) return;
  to.mean[c] = all.mean;
  to.m2[c] = all.m2;
}

}  // namespace

std::int64_t batch_scratch(const BatchShape* shape, int device) {
  std::int64_t most = 0;
  for (const int width : {1, 4, 8}) {
    const std::int64_t pieces = batch_cut(*shape, width, device).pieces;
    most = most < pieces ? pieces : most;
  }
  const auto numbers = static_cast<std::int64_t>(sizeof(CountedMoments) / sizeof(double));
  return most * shape->channels * numbers;
}

bool batch_moments(const Rows* x, const BatchShape* shape, const Moments* moments, double* scratch,
                   int device, Stream stream) {
  if (shape->channels == 0) return true;
  const OnDevice on(device);
  auto* of_piece = reinterpret_cast<CountedMoments*>(scratch);
  std::int64_t pieces = 0;
  if (shape->count() > 0) {
    with_batch_types({*x}, [&](auto number, auto access) {
      using S = decltype(number);
      using X = decltype(access);
      const BatchCut cut = batch_cut(*shape, batch_width(*shape, kBatchWidth<X>, {*x}), device);
      pieces = cut.pieces;
      launch(stream_of(stream), cut.grid(), kThreads, moments_kernel<S, X>, *x, cut, of_piece);
    });
  }
  launch(stream_of(stream), blocks_for(shape->channels, kChannelsAtEnd), kThreads, join_moments,
         of_piece, pieces, shape->channels, *moments);
  return succeeded(cudaGetLastError());
}

bool batch_merge(const double* of_ranks, std::int64_t ranks, std::int64_t stride,
                 std::int64_t channels, const Moments* moments, int device, Stream stream) {
  if (channels == 0) return true;
  const OnDevice on(device);
  launch(stream_of(stream), blocks_for(channels, kChannelsAtEnd), kThreads, join_ranks, of_ranks,
         ranks, stride, channels, *moments);
  return succeeded(cudaGetLastError());
}

}  // namespace mezzo::kernels::cuda
