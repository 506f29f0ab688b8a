// Which kernels hold a row in registers: eight elements at a time, up to four times, on 32, 128 or
// 512 threads.
#pragma once

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mezzo::kernels::cuda {

constexpr int kPack = 8;
constexpr int kPacks = 4;

/// Threads that share a row; 0 if a row is too long, or not whole packs.
inline int lanes_for(std::int64_t columns) {
  if (columns % kPack != 0) return 0;
  for (const int lanes : {32, 128, 512}) {
    if (columns <= lanes * kPack * kPacks) return lanes;
  }
  return 0;
}

/// Threads of a block, which takes several rows where they are short.
template <int kLanes>
constexpr int kThreadsFor = kLanes < 128 ? 128 : kLanes;

/// The sum over the threads of a row.
template <int kLanes, typename T>
__device__ inline T row_sum(T x) {
  if constexpr (kLanes == kWarp) {
    return warp_reduce<Sum>(x);
  } else {
    return block_reduce<Sum, kLanes>(x, T(0));
  }
}

/// The first column of a thread's pack.
template <int kLanes>
__device__ inline std::int64_t column_of(int lane, int pack) {
  return (static_cast<std::int64_t>(pack) * kLanes + lane) * kPack;
}

/// May packs be read from a matrix of whole packs that begins here?
inline bool row_packable(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % (kPack * element_size(dtype)) == 0;
}

/// Calls body(Type, Wide) with the types of two matrices: both alike, or the second float.
template <typename Body>
bool with_row_types(DType type, DType wide, const Body& body) {
  if (type == DType::kFloat32 && wide == DType::kFloat32) {
    body(float(), float());
  } else if (type == DType::kFloat16 && wide == DType::kFloat16) {
    body(Half(), Half());
  } else if (type == DType::kBFloat16 && wide == DType::kBFloat16) {
    body(BFloat(), BFloat());
  } else if (type == DType::kFloat16 && wide == DType::kFloat32) {
    body(Half(), float());
  } else if (type == DType::kBFloat16 && wide == DType::kFloat32) {
    body(BFloat(), float());
  } else {
    return false;
  }
  return true;
}

}  // namespace mezzo::kernels::cuda
