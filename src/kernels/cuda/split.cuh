// Split masters on devices; see Note [Split masters] in split_master.h.
#pragma once

#include "kernels/cuda/interface.h"
#include "kernels/cuda/memory.cuh"
#include "kernels/split_master.h"

namespace mezzo::kernels::cuda {

/// Like Typed and Any: floats that are stored as bfloat16 weights, remainders and a mask of ties.
struct Split {
  void* remainder;
  std::uint32_t* ties;

  template <int N>
  __device__ void load(const void* weights, std::int64_t i, float (&to)[N]) const {
    const auto w = pack_at<N>(weights, i);
    const auto r = pack_at<N>(remainder, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool above = r.of[k] == kTie && (ties[(i + k) / 32] >> ((i + k) % 32) & 1u) != 0;
      to[k] = same_bits<float>(join_master({w.of[k], r.of[k], above}));
    }
  }

  template <int N>
  __device__ void store(void* weights, std::int64_t i, const float (&from)[N]) const {
    Pack<std::uint16_t, N> w;
    Pack<std::uint16_t, N> r;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const SplitMaster split = split_master(same_bits<std::uint32_t>(from[k]));
      w.of[k] = split.weight;
      r.of[k] = split.remainder;
      if (split.remainder == kTie) note_tie(i + k, split.tie_above);
    }
    *reinterpret_cast<Pack<std::uint16_t, N>*>(static_cast<std::uint16_t*>(weights) + i) = w;
    *reinterpret_cast<Pack<std::uint16_t, N>*>(static_cast<std::uint16_t*>(remainder) + i) = r;
  }

 private:
  template <int N>
  __device__ static Pack<std::uint16_t, N> pack_at(const void* data, std::int64_t i) {
    return *reinterpret_cast<const Pack<std::uint16_t, N>*>(
        static_cast<const std::uint16_t*>(data) + i);
  }
  // Threads share words.
  __device__ void note_tie(std::int64_t i, bool above) const {
    std::uint32_t* const word = ties + i / 32;
    const std::uint32_t bit = 1u << (i % 32);
    if (above) {
      atomicOr(word, bit);
    } else {
      atomicAnd(word, ~bit);
    }
  }
};

bool join_masters(const StepRow* row, float* masters, int device, Stream);
bool split_masters(const StepRow* row, const float* masters, int device, Stream);

}  // namespace mezzo::kernels::cuda
