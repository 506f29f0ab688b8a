// Batch normalisation on the device: how a batch is cut into pieces, one for a block, and what the
// threads of a block do with theirs. See batch_moments.cu and batch_norms.cu.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "kernels/batch_norm.h"
#include "kernels/batch_norm_elements.h"
#include "kernels/cuda/interface.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/memory.cuh"

namespace mezzo::kernels::cuda {

std::int64_t batch_scratch(const BatchShape*, int device);
bool batch_moments(const Rows* x, const BatchShape*, const Moments*, double* scratch, int device,
                   Stream);
bool batch_merge(const double* of_ranks, std::int64_t ranks, std::int64_t stride,
                 std::int64_t channels, const Moments*, int device, Stream);
bool batch_normalise(const BatchNormalise*, int device, Stream);
bool batch_backward_reduce(const BatchGradient*, double* sum_dy, double* sum_dy_xmu,
                           double* scratch, int device, Stream);
bool batch_backward_apply(const BatchBackwardApply*, int device, Stream);

/// Where channels are innermost a block takes a few channels of a range of samples, else one
/// channel of a range of samples and places.
struct BatchCut {
  BatchShape shape;
  int along = 1;             // threads side by side in memory, a power of two; the others follow
  int width = 1;             // elements that a thread takes at once
  std::int64_t samples = 0;  // of a piece
  std::int64_t places = 0;
  std::int64_t place_pieces = 1;  // pieces that share their samples
  std::int64_t pieces = 0;        // of a channel

  MEZZO_HD bool innermost() const { return shape.places == 1; }
  dim3 grid() const;
};

/// A matter of shape, width and device alone.
BatchCut batch_cut(const BatchShape&, int width, int device);

/// Elements of this access that a thread takes at once.
template <typename X>
constexpr int kBatchWidth = 4;
template <>
constexpr int kBatchWidth<Typed<Half>> = 8;
template <>
constexpr int kBatchWidth<Typed<BFloat>> = 8;

template <typename X>
__device__ inline X access_to(DType dtype) {
  if constexpr (std::is_same_v<X, Any>) {
    return Any{dtype};
  } else {
    return X();
  }
}

/// The first of the channels that a thread works on, as many as elements at once where channels are
/// innermost; may lie behind the last one.
__device__ inline std::int64_t first_channel(const BatchCut& cut) {
  if (!cut.innermost()) return blockIdx.x;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * cut.along;
  return (tile + threadIdx.x % cut.along) * cut.width;
}
/// The channel of element k of a thread.
__device__ inline std::int64_t channel_of(const BatchCut& cut, int k) {
  return cut.innermost() && k < cut.width ? first_channel(cut) + k : first_channel(cut);
}

__device__ inline Range piece_of(std::int64_t piece, std::int64_t length, std::int64_t end) {
  const std::int64_t begin = piece * length;
  return {begin < end ? begin : end, begin + length < end ? begin + length : end};
}

template <int N, typename Body>
__device__ inline void for_batch_rows(const BatchCut& cut, const Body& body) {
  const std::int64_t channels = cut.shape.channels;
  const std::int64_t channel = first_channel(cut);
  if (channel >= channels) return;
  const Range rows = piece_of(blockIdx.y, cut.samples, cut.shape.samples);
  const int across = kThreads / cut.along;
  for (std::int64_t row = rows.begin + threadIdx.x / cut.along; row < rows.end; row += across) {
    body(Count<N>(), row * channels + channel);
  }
}

template <int N, typename Body>
__device__ inline void for_batch_planes(const BatchCut& cut, const Body& body) {
  const Range samples = piece_of(blockIdx.y / cut.place_pieces, cut.samples, cut.shape.samples);
  const Range places = piece_of(blockIdx.y % cut.place_pieces, cut.places, cut.shape.places);
  const int across = kThreads / cut.along;
  const std::int64_t begin = places.begin + static_cast<std::int64_t>(threadIdx.x % cut.along) * N;
  for (std::int64_t n = samples.begin + threadIdx.x / cut.along; n < samples.end; n += across) {
    const std::int64_t plane = (n * cut.shape.channels + blockIdx.x) * cut.shape.places;
    for (std::int64_t s = begin; s < places.end; s += cut.along * N) {
      body(Count<N>(), plane + s);
    }
  }
}

/// Calls body(Count<N>, i) for elements i to i + N - 1 of this thread's part of the block's piece:
/// N is cut.width, which is kWidth or 1.
template <int kWidth, typename Body>
__device__ inline void for_batch(const BatchCut& cut, const Body& body) {
  if (cut.width == 1) {
    return cut.innermost() ? for_batch_rows<1>(cut, body) : for_batch_planes<1>(cut, body);
  }
  cut.innermost() ? for_batch_rows<kWidth>(cut, body) : for_batch_planes<kWidth>(cut, body);
}

/// Joins what threads hold of the same channel: those that lie `along` apart. Every thread gets its
/// channel's.
template <typename Partial>
__device__ inline Partial join_across(const Partial& mine, int along) {
  __shared__ Partial of_thread[kThreads];
  __syncthreads();  // a previous call may still be read
  of_thread[threadIdx.x] = mine;
  for (int half = kThreads / 2; half >= along; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      of_thread[threadIdx.x] = joined(of_thread[threadIdx.x], of_thread[threadIdx.x + half]);
    }
  }
  __syncthreads();
  return of_thread[threadIdx.x % along];
}

/// Joins a block's partial results, N of each thread, and leaves them in of_piece,
/// [piece][channel].
template <typename Partial, int N>
__device__ inline void leave_partial(const BatchCut& cut, Partial (&mine)[N], Partial* of_piece) {
  Partial* to = of_piece + blockIdx.y * cut.shape.channels;
  if (!cut.innermost()) {
    for (int k = 1; k < N; ++k) mine[0] = joined(mine[0], mine[k]);
    const Partial all = join_across(mine[0], 1);
    if (threadIdx.x == 0) to[blockIdx.x] = all;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k >= cut.width) break;
    const Partial all = join_across(mine[k], cut.along);
    const std::int64_t channel = channel_of(cut, k);
    if (static_cast<int>(threadIdx.x) < cut.along && channel < cut.shape.channels) {
      to[channel] = all;
    }
  }
}

constexpr int kChannelsAtEnd = 8;

/// The joined results of this thread's channel over the pieces; `at(piece)` reads one. For
/// blocks of kThreads that take kChannelsAtEnd channels.
template <typename Partial, typename At>
__device__ inline Partial join_pieces(std::int64_t pieces, bool present, const At& at) {
  Partial mine{};
  const int across = kThreads / kChannelsAtEnd;
  for (std::int64_t p = threadIdx.x / kChannelsAtEnd; p < pieces && present; p += across) {
    mine = joined(mine, at(p));
  }
  return join_across(mine, kChannelsAtEnd);
}

/// The buffers of a call, x first.
using BatchBuffers = std::initializer_list<Rows>;

/// The elements that may be taken at once, `width` or 1: where everything lies on whole packs.
int batch_width(const BatchShape&, int width, BatchBuffers);
/// Have those that are there the same type, of 16 bits or float?
bool all_alike(BatchBuffers);

/// Calls body(S, X) with the type that is computed in, and with the access to every buffer.
template <typename Body>
void with_batch_types(BatchBuffers buffers, const Body& body) {
  const DType x = buffers.begin()->dtype;
  if (x == DType::kFloat64) {
    body(double(), Any());
  } else if (!all_alike(buffers)) {
    body(float(), Any());
  } else if (x == DType::kFloat32) {
    body(float(), Typed<float>());
  } else if (x == DType::kFloat16) {
    body(float(), Typed<Half>());
  } else {
    body(float(), Typed<BFloat>());
  }
}

}  // namespace mezzo::kernels::cuda
