// Sums and maxima over a warp and a block, in an order that depends on nothing.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace mezzo::kernels::cuda {

struct Sum {
  template <typename T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};
/// NaN wins.
struct Largest {
  template <typename T>
  __device__ static T join(T a, T b) {
    return a != a || a > b ? a : b;
  }
};

/// Every lane gets the result.
template <typename Join, typename T>
__device__ inline T warp_reduce(T x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = Join::join(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

/// Over a block of kBlock threads, a multiple of 32; every thread gets the result. `zero` is what
/// joining leaves alone.
template <typename Join, int kBlock, typename T>
__device__ inline T block_reduce(T x, T zero) {
  __shared__ T of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  x = warp_reduce<Join>(x);
  if constexpr (kBlock == kWarp) return x;
  __syncthreads();  // a previous call may still be read
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = lane < kBlock / kWarp ? of_warp[lane] : zero;
  return warp_reduce<Join>(x);
}

}  // namespace mezzo::kernels::cuda
