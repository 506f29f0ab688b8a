// The kernel behind every fused step: reads the numbers of its row, then unscales, updates and
// copies a chunk of it in one pass.
#pragma once

#include <type_traits>

#include "kernels/cuda/list.cuh"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/split.cuh"
#include "kernels/cuda/step_elements.cuh"

namespace mezzo::kernels::cuda {

/// N elements from i on.
template <typename Step, typename S, int N, typename P, typename G>
__device__ inline void step_elements(const StepTensor& row, std::int64_t i, S factor,
                                     const typename Step::template Scalars<S>& h, P param_type,
                                     G grad_type, Step& step) {
  S param[N];
  S grad[N] = {};
  S state[3][N] = {};
  // All loads before the first use, so that they are in flight together.
  param_type.load(row.param, i, param);
  if constexpr (!std::is_same_v<Step, LambApplyStep>) grad_type.load(row.grad, i, grad);
#pragma unroll
  for (int s = 0; s < Step::kStates; ++s) {
    if (Step::reads(s, h)) load<S, N>(row.state[s], i, state[s]);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    step.element(param[k], grad[k] * factor, state[0][k], state[1][k], state[2][k], h);
  }
  if constexpr (Step::kMovesParam) {
    param_type.store(row.param, i, param);
    store_copy<N>(row.copy, row.copy_kind, i, param);
  }
#pragma unroll
  for (int s = 0; s < Step::kStates; ++s) {
    if (Step::writes(s, h)) store<S, N>(row.state[s], i, state[s]);
  }
}

template <typename Step, typename S, typename P, typename G>
__device__ inline void step_part(const Part<StepTensor>& part, const StepFlags& flags,
                                 const typename Step::template Scalars<S>& h, P param_type,
                                 G grad_type, Step& step) {
  const S inv_scale = flags.inv_scale == nullptr ? S(1) : static_cast<S>(*flags.inv_scale);
  const S factor = h.grad_scale * inv_scale;
  for_elements(part.begin, part.end, part.row.packed, [&](auto count, std::int64_t i) {
    constexpr int N = decltype(count)::value;
    step_elements<Step, S, N>(part.row, i, factor, h, param_type, grad_type, step);
  });
}

/// Double weights have kernels of their own: their arithmetic would cost the others registers.
/// Float weights with float or 16-bit gradients are worth code of their own, the rest asks for the
/// types of each group of elements.
template <typename Step, bool kDouble>
__device__ inline void step_row(const Part<StepTensor>& part, const StepFlags& flags,
                                const typename Step::template Scalars<double>& given, Step& step) {
  const StepTensor& row = part.row;
  const Any grad{row.grad_dtype};
  if ((row.param_dtype == DType::kFloat64) != kDouble) return;
  if constexpr (kDouble) {
    step_part<Step, double>(part, flags, given, Typed<double>(), grad, step);
  } else {
    const auto h = scalars<float>(given);
    if constexpr (Step::kSplits) {
      if (row.remainder != nullptr) {
        const Split split{row.remainder, row.ties};
        return step_part<Step, float>(part, flags, h, split, grad, step);
      }
    }
    if (row.param_dtype != DType::kFloat32) {
      return step_part<Step, float>(part, flags, h, Any{row.param_dtype}, grad, step);
    }
    switch (row.grad_dtype) {
      case DType::kFloat16:
        return step_part<Step, float>(part, flags, h, Typed<float>(), Typed<Half>(), step);
      case DType::kBFloat16:
        return step_part<Step, float>(part, flags, h, Typed<float>(), Typed<BFloat>(), step);
      default:
        return step_part<Step, float>(part, flags, h, Typed<float>(), Typed<float>(), step);
    }
  }
}

/// Four blocks a processor: with fewer loads in flight the memory would wait.
template <typename Step, bool kDouble>
__global__ void __launch_bounds__(kThreads, kDouble ? 2 : 4)
    step_kernel(RowTable<StepTensor> table, const typename Step::template Scalars<double>* of_row,
                StepFlags flags) {
  if (skips(flags.skip)) return;
  Step step;
  step_row<Step, kDouble>(part_of(table), flags, of_row[table.row_of_chunk[blockIdx.x]], step);
}

}  // namespace mezzo::kernels::cuda
