// Normalisation of a batch, and both halves of its backward. The numbers of a channel are computed
// from means and weights by each thread that needs them, once for all its elements.
#include "kernels/cuda/batch_norms.cuh"

namespace mezzo::kernels::cuda {
namespace {

__device__ double number_or(const Rows& row, std::int64_t channel, double otherwise) {
  if (row.data == nullptr) return otherwise;
  double number[1];
  Any{row.dtype}.load(row.data, channel, number);
  return number[0];
}

/// A mean in two parts: as S has it, and what that leaves over.
template <typename S>
struct Centre {
  S near;
  double rest;
  __device__ explicit Centre(double mean)
      : near(static_cast<S>(mean)), rest(mean - static_cast<double>(near)) {}
};

template <typename S>
struct NormaliseNumbers {
  S centre = 0, scale = 0, shift = 0;

  __device__ void find(const BatchNormalise& n, std::int64_t c) {
    const Centre<S> mean(n.mean[c]);
    const double exact = n.rstd[c] * number_or(n.weight, c, 1);
    centre = mean.near;
    scale = static_cast<S>(exact);
    shift = static_cast<S>(number_or(n.bias, c, 0) - mean.rest * exact);
  }
};

template <typename S>
struct GradientNumbers {
  S centre = 0, of_dy = 0, of_x = 0, constant = 0;

  __device__ void find(const BatchBackwardApply& a, std::int64_t c) {
    const Centre<S> mean(a.gradient.mean[c]);
    const double rstd = a.rstd[c];
    const double by_dy = rstd * number_or(a.weight, c, 1);
    const double mean_dy = a.mean_dy == nullptr ? 0 : a.mean_dy[c];
    const double by_x = a.mean_dy_xmu == nullptr ? 0 : -by_dy * rstd * rstd * a.mean_dy_xmu[c];
    centre = mean.near;
    of_dy = static_cast<S>(by_dy);
    of_x = static_cast<S>(by_x);
    constant = static_cast<S>(-by_dy * mean_dy - by_x * mean.rest);
  }
};

template <typename S>
struct CentreNumber {
  S centre = 0;
  __device__ void find(const BatchGradient& g, std::int64_t c) {
    centre = Centre<S>(g.mean[c]).near;
  }
};

/// The numbers of this thread's channels.
template <typename Numbers, int N, typename Call>
__device__ void find_numbers(const BatchCut& cut, const Call& call, Numbers (&numbers)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k > 0 && !cut.innermost()) {
      numbers[k] = numbers[0];
    } else if (channel_of(cut, k) < cut.shape.channels) {
      numbers[k].find(call, channel_of(cut, k));
    }
  }
}

template <typename S, typename X>
__global__ void __launch_bounds__(kThreads) normalise_kernel(BatchNormalise n, BatchCut cut) {
  constexpr int kWidth = kBatchWidth<X>;
  NormaliseNumbers<S> numbers[kWidth];
  find_numbers(cut, n, numbers);
  for_batch<kWidth>(cut, [&](auto elements, std::int64_t i) {
    constexpr int N = decltype(elements)::value;
    S values[N];
    S residual[N] = {};
    access_to<X>(n.x.dtype).load(n.x.data, i, values);
    if (n.residual.data != nullptr) {
      access_to<X>(n.residual.dtype).load(n.residual.data, i, residual);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const NormaliseNumbers<S>& of = numbers[k];
      values[k] = batch_norm_element(values[k], of.centre, of.scale, of.shift);
      if (n.residual.data != nullptr) values[k] += residual[k];
      if (n.relu) values[k] = rectified(values[k]);
    }
    access_to<X>(n.y.dtype).store(n.y.data, i, values);
  });
}

/// dy, where a relu let it through.
template <typename X, int N, typename S>
__device__ void load_gradient(const BatchGradient& g, std::int64_t i, S (&dy)[N]) {
  access_to<X>(g.dy.dtype).load(g.dy.data, i, dy);
  if (g.relu_output.data == nullptr) return;
  S y[N];
  access_to<X>(g.relu_output.dtype).load(g.relu_output.data, i, y);
#pragma unroll
  for (int k = 0; k < N; ++k) dy[k] = rectified_gradient(y[k], dy[k]);
}

struct GradientSums {
  double dy, dy_xmu;
};
__device__ GradientSums joined(const GradientSums& a, const GradientSums& b) {
  return {a.dy + b.dy, a.dy_xmu + b.dy_xmu};
}

template <typename S, typename X>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(BatchGradient g, BatchCut cut, GradientSums* of_piece) {
  constexpr int kWidth = kBatchWidth<X>;
  CentreNumber<S> numbers[kWidth];
  find_numbers(cut, g, numbers);
  S alone[kWidth] = {};
  S with_x[kWidth] = {};
  for_batch<kWidth>(cut, [&](auto elements, std::int64_t i) {
    constexpr int N = decltype(elements)::value;
    S dy[N], x[N];
    load_gradient<X>(g, i, dy);
    access_to<X>(g.x.dtype).load(g.x.data, i, x);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      alone[k] += dy[k];
      with_x[k] += dy[k] * (x[k] - numbers[k].centre);
    }
  });
  GradientSums mine[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    mine[k] = {static_cast<double>(alone[k]), static_cast<double>(with_x[k])};
  }
  leave_partial(cut, mine, of_piece);
}

template <typename S>
__global__ void __launch_bounds__(kThreads)
    join_sums(const GradientSums* of_piece, std::int64_t pieces, std::int64_t channels,
              const double* mean, double* sum_dy, double* sum_dy_xmu) {
  const std::int64_t c =
      static_cast<std::int64_t>(blockIdx.x) * kChannelsAtEnd + threadIdx.x % kChannelsAtEnd;
  const auto all = join_pieces<GradientSums>(
      pieces, c < channels, [&](std::int64_t p) { return of_piece[p * channels + c]; });
  if (threadIdx.x >= kChannelsAtEnd || c >= channels) return;
  sum_dy[c] = all.dy;
  sum_dy_xmu[c] = all.dy_xmu - Centre<S>(mean[c]).rest * all.dy;
}

template <typename S, typename X>
__global__ void __launch_bounds__(kThreads) apply_kernel(BatchBackwardApply a, BatchCut cut) {
  constexpr int kWidth = kBatchWidth<X>;
  const BatchGradient& g = a.gradient;
  GradientNumbers<S> numbers[kWidth];
  find_numbers(cut, a, numbers);
  for_batch<kWidth>(cut, [&](auto elements, std::int64_t i) {
    constexpr int N = decltype(elements)::value;
    S dy[N];
    load_gradient<X>(g, i, dy);
    if (a.dresidual.data != nullptr) {
      access_to<X>(a.dresidual.dtype).store(a.dresidual.data, i, dy);
    }
    if (a.dx.data == nullptr) return;
    S x[N];
    access_to<X>(g.x.dtype).load(g.x.data, i, x);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const GradientNumbers<S>& of = numbers[k];
      x[k] = batch_norm_gradient(dy[k], x[k], of.centre, of.of_dy, of.of_x, of.constant);
    }
    access_to<X>(a.dx.dtype).store(a.dx.data, i, x);
  });
}

Rows as_rows(const RowsOut& out) {
  return {out.data, out.dtype};
}

/// Calls body(S, X, cut) for these buffers.
template <typename Body>
void over_batch(const BatchShape& shape, int device, BatchBuffers buffers, const Body& body) {
  with_batch_types(buffers, [&](auto number, auto access) {
    const int width = batch_width(shape, kBatchWidth<decltype(access)>, buffers);
    body(number, access, batch_cut(shape, width, device));
  });
}

}  // namespace

bool batch_normalise(const BatchNormalise* n, int device, Stream stream) {
  if (n->shape.channels == 0 || n->shape.count() == 0) return true;
  const OnDevice on(device);
  over_batch(n->shape, device, {n->x, n->residual, as_rows(n->y)},
             [&](auto number, auto access, const BatchCut& cut) {
               launch(stream_of(stream), cut.grid(), kThreads,
                      normalise_kernel<decltype(number), decltype(access)>, *n, cut);
             });
  return succeeded(cudaGetLastError());
}

bool batch_backward_reduce(const BatchGradient* g, double* sum_dy, double* sum_dy_xmu,
                           double* scratch, int device, Stream stream) {
  const BatchShape& shape = g->shape;
  if (shape.channels == 0) return true;
  const OnDevice on(device);
  auto* of_piece = reinterpret_cast<GradientSums*>(scratch);
  std::int64_t pieces = 0;
  if (shape.count() > 0) {
    over_batch(shape, device, {g->x, g->dy, g->relu_output},
               [&](auto number, auto access, const BatchCut& cut) {
                 pieces = cut.pieces;
                 launch(stream_of(stream), cut.grid(), kThreads,
                        reduce_kernel<decltype(number), decltype(access)>, *g, cut, of_piece);
               });
  }
  launch(stream_of(stream), blocks_for(shape.channels, kChannelsAtEnd), kThreads,
         g->x.dtype == DType::kFloat64 ? join_sums<double> : join_sums<float>, of_piece, pieces,
         shape.channels, g->mean, sum_dy, sum_dy_xmu);
  return succeeded(cudaGetLastError());
}

bool batch_backward_apply(const BatchBackwardApply* a, int device, Stream stream) {
  const BatchGradient& g = a->gradient;
  if (g.shape.channels == 0 || g.shape.count() == 0) return true;
  const OnDevice on(device);
  over_batch(g.shape, device, {g.x, g.dy, g.relu_output, as_rows(a->dx), as_rows(a->dresidual)},
             [&](auto number, auto access, const BatchCut& cut) {
               launch(stream_of(stream), cut.grid(), kThreads,
                      apply_kernel<decltype(number), decltype(access)>, *a, cut);
             });
  return succeeded(cudaGetLastError());
}

}  // namespace mezzo::kernels::cuda
