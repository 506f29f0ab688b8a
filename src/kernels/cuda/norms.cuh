// Layer and RMS normalisation on the device; see norm_rows.cu for rows that fit into registers and
// norm_any.cu for all others.
#pragma once

#include <cmath>

#include "kernels/cuda/interface.h"
#include "kernels/cuda/launch.cuh"

namespace mezzo::kernels::cuda {

bool norm_forward(const NormForward*, int device, Stream);
std::int64_t norm_scratch(const NormShape*, int device);
bool norm_backward(const NormBackward*, void* scratch, int device, Stream);

/// Blocks of a backward pass, each of which leaves partial sums over its rows: the same for all
/// kernels, so that scratch memory is a matter of the shape.
unsigned norm_blocks(std::int64_t rows, int device);

/// Rows in registers: queues nothing and returns false for types, sizes and addresses that it does
/// not take. The backward leaves sums of `blocks` blocks in scratch, [block][weight, bias][column].
bool norm_rows_forward(const NormForward&, cudaStream_t);
bool norm_rows_backward(const NormBackward&, float* scratch, unsigned blocks, cudaStream_t);

/// Every type and size, by reading a row again from the cache.
void norm_any_forward(const NormForward&, cudaStream_t);
void norm_any_backward(const NormBackward&, void* scratch, unsigned blocks, cudaStream_t);

/// The divisor of a backward pass, away from zero, with its sign.
template <typename S>
__device__ inline S away_from_zero(S w, S least) {
  const S magnitude = largest(w < S(0) ? -w : w, least);
  return std::signbit(w) ? -magnitude : magnitude;
}

}  // namespace mezzo::kernels::cuda
