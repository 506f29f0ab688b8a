// Elements in and out of device memory: one, or several at once where addresses allow it. Rounding
// is to nearest even; a double becomes a 16-bit number by way of float, as in the CPU sets.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/buffers.h"
#include "kernels/elements.h"
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace mezzo::kernels::cuda {

struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

template <typename To, typename From>
MEZZO_HD inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

MEZZO_HD inline float widen(float x) {
  return x;
}
MEZZO_HD inline double widen(double x) {
  return x;
}
MEZZO_HD inline float widen(BFloat x) {
  return same_bits<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
MEZZO_HD inline float widen(Half x) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(x.bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return same_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float value = same_bits<float>(magnitude << 13) * 0x1p112f;
  return same_bits<float>(sign | same_bits<std::uint32_t>(value));
#endif
}

template <typename T>
struct Narrow;
template <>
struct Narrow<float> {
  MEZZO_HD static float of(float x) { return x; }
  MEZZO_HD static float of(double x) { return static_cast<float>(x); }
};
template <>
struct Narrow<double> {
  MEZZO_HD static double of(float x) { return static_cast<double>(x); }
  MEZZO_HD static double of(double x) { return x; }
};
template <>
struct Narrow<BFloat> {
  MEZZO_HD static BFloat of(float x) {
    const auto w = same_bits<std::uint32_t>(x);
    if ((w & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};
    return {static_cast<std::uint16_t>((w + 0x7fffu + ((w >> 16) & 1u)) >> 16)};
  }
  MEZZO_HD static BFloat of(double x) { return of(static_cast<float>(x)); }
};
template <>
struct Narrow<Half> {
  MEZZO_HD static Half of(float x) {
#if defined(__CUDA_ARCH__)
    return {__half_as_ushort(__float2half_rn(x))};
#else
    const auto w = same_bits<std::uint32_t>(x);
    const auto sign = static_cast<std::uint16_t>((w >> 16) & 0x8000u);
    const std::uint32_t magnitude = w & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {  // below the normal numbers: the sum rounds at 2^-24
      const float sum = same_bits<float>(magnitude) + 0.5f;
      return {static_cast<std::uint16_t>(sign | (same_bits<std::uint32_t>(sum) - 0x3f000000u))};
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
#endif
  }
  MEZZO_HD static Half of(double x) {
    return of(static_cast<float>(x));
  }
};

/// N elements side by side, read and written by as few instructions as their size allows.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T of[N];
};

template <typename T, int N, typename S>
__device__ inline void load(const void* data, std::int64_t i, S (&to)[N]) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(data) + i);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = static_cast<S>(widen(pack.of[k]));
}

template <typename T, int N, typename S>
__device__ inline void store(void* data, std::int64_t i, const S (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.of[k] = Narrow<T>::of(from[k]);
  *reinterpret_cast<Pack<T, N>*>(static_cast<T*>(data) + i) = pack;
}

/// Elements of a type that is known when compiling, and of one that is known when running: all
/// threads of a block take the same branch.
template <typename T>
struct Typed {
  template <int N, typename S>
  __device__ void load(const void* data, std::int64_t i, S (&to)[N]) const {
    cuda::load<T, N>(data, i, to);
  }
  template <int N, typename S>
  __device__ void store(void* data, std::int64_t i, const S (&from)[N]) const {
    cuda::store<T, N>(data, i, from);
  }
};

struct Any {
  DType dtype;

  template <int N, typename S>
  __device__ void load(const void* data, std::int64_t i, S (&to)[N]) const {
    switch (dtype) {
      case DType::kFloat16:
        return cuda::load<Half, N>(data, i, to);
      case DType::kBFloat16:
        return cuda::load<BFloat, N>(data, i, to);
      case DType::kFloat64:
        return cuda::load<double, N>(data, i, to);
      default:
        return cuda::load<float, N>(data, i, to);
    }
  }
  template <int N, typename S>
  __device__ void store(void* data, std::int64_t i, const S (&from)[N]) const {
    switch (dtype) {
      case DType::kFloat16:
        return cuda::store<Half, N>(data, i, from);
      case DType::kBFloat16:
        return cuda::store<BFloat, N>(data, i, from);
      case DType::kFloat64:
        return cuda::store<double, N>(data, i, from);
      default:
        return cuda::store<float, N>(data, i, from);
    }
  }
};

template <int N, typename S>
__device__ inline void store_copy(void* data, CopyKind kind, std::int64_t i, const S (&from)[N]) {
  float rounded[N];
  switch (kind) {
    case CopyKind::kNone:
      return;
    case CopyKind::kFloat16:
      return store<Half, N>(data, i, from);
    case CopyKind::kBFloat16:
      return store<BFloat, N>(data, i, from);
    case CopyKind::kRoundedToFloat16:
#pragma unroll
      for (int k = 0; k < N; ++k) rounded[k] = widen(Narrow<Half>::of(from[k]));
      return store<float, N>(data, i, rounded);
    case CopyKind::kRoundedToBFloat16:
#pragma unroll
      for (int k = 0; k < N; ++k) rounded[k] = widen(Narrow<BFloat>::of(from[k]));
      return store<float, N>(data, i, rounded);
    case CopyKind::kFloat32:
      return store<float, N>(data, i, from);
  }
}

/// Calls body(integral N, i) over elements begin to end - 1 of a block: four at once where `packed`
/// (begin is a multiple of four and every address one of four elements), else one by one.
template <int N>
struct Count {
  static constexpr int value = N;
};
template <typename Body>
__device__ inline void for_elements(std::int64_t begin, std::int64_t end, bool packed,
                                    const Body& body) {
  const std::int64_t whole = packed ? begin + (end - begin) / 4 * 4 : begin;
  for (std::int64_t i = begin + threadIdx.x * 4; i < whole; i += blockDim.x * 4)
    body(Count<4>(), i);
  for (std::int64_t i = whole + threadIdx.x; i < end; i += blockDim.x) body(Count<1>(), i);
}

/// Host: may four elements of this type at a time be read from here? Asked thousands of times a
/// step, so without a division: sizes are powers of two.
inline bool packable(const void* data, std::size_t element_size) {
  return (reinterpret_cast<std::uintptr_t>(data) & (4 * element_size - 1)) == 0;
}

/// As above, without a table, for host and device.
MEZZO_HD inline std::size_t element_size(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

/// The smallest magnitude that rounds to infinity in this type.
__device__ inline double overflow_limit(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65520.0;
    case DType::kBFloat16:
      return 0x1.ffp+127;
    case DType::kFloat32:
      return 0x1.ffffffp+127;
    default:
      return HUGE_VAL;
  }
}

__device__ inline bool skips(const float* skip) {
  return skip != nullptr && *skip != 0.0f;
}

}  // namespace mezzo::kernels::cuda
