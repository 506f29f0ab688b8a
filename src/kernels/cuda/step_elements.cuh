// Each optimizer's element, as the step kernel sees it: how many states, which of them are read and
// written, whether its weights may be split masters, and what happens to one element. The
// arithmetic is elements.h's.
#pragma once

#include "kernels/elements.h"

namespace mezzo::kernels::cuda {

/// All states are read and written, whatever the numbers of the step are.
struct EveryState {
  template <typename H>
  __device__ static bool reads(int, const H&) {
    return true;
  }
  template <typename H>
  __device__ static bool writes(int, const H&) {
    return true;
  }
};

struct AdamStep {
  template <typename S>
  using Scalars = AdamScalars<S>;
  static constexpr int kStates = 3;
  static constexpr bool kMovesParam = true;
  static constexpr bool kSplits = true;

  template <typename S>
  __device__ static bool reads(int state, const Scalars<S>& h) {
    return state < 2 || h.amsgrad;
  }
  template <typename S>
  __device__ static bool writes(int state, const Scalars<S>& h) {
    return reads(state, h);
  }
  template <typename S>
  __device__ void element(S& param, S grad, S& m, S& v, S& largest_v, const Scalars<S>& h) {
    const AdamElement<S> s = adam_element(AdamElement<S>{param, m, v, largest_v}, grad, h);
    param = s.param;
    m = s.exp_avg;
    v = s.exp_avg_sq;
    largest_v = s.max_exp_avg_sq;
  }
};

struct SgdStep {
  template <typename S>
  using Scalars = SgdScalars<S>;
  static constexpr int kStates = 1;
  static constexpr bool kMovesParam = true;
  static constexpr bool kSplits = true;

  template <typename S>
  __device__ static bool reads(int, const Scalars<S>& h) {
    return h.momentum != S(0) && !h.first;
  }
  template <typename S>
  __device__ static bool writes(int, const Scalars<S>& h) {
    return h.momentum != S(0);
  }
  template <typename S>
  __device__ void element(S& param, S grad, S& buffer, S&, S&, const Scalars<S>& h) {
    const SgdElement<S> s = sgd_element(SgdElement<S>{param, buffer}, grad, h);
    param = s.param;
    buffer = s.buffer;
  }
};

struct AdagradStep : EveryState {
  template <typename S>
  using Scalars = AdagradScalars<S>;
  static constexpr int kStates = 1;
  static constexpr bool kMovesParam = true;
  static constexpr bool kSplits = false;

  template <typename S>
  __device__ void element(S& param, S grad, S& sum, S&, S&, const Scalars<S>& h) {
    const AdagradElement<S> s = adagrad_element(AdagradElement<S>{param, sum}, grad, h);
    param = s.param;
    sum = s.sum;
  }
};

struct NovogradStep : EveryState {
  template <typename S>
  using Scalars = NovogradScalars<S>;
  static constexpr int kStates = 1;
  static constexpr bool kMovesParam = true;
  static constexpr bool kSplits = false;

  template <typename S>
  __device__ void element(S& param, S grad, S& m, S&, S&, const Scalars<S>& h) {
    const NovogradElement<S> s = novograd_element(NovogradElement<S>{param, m}, grad, h);
    param = s.param;
    m = s.exp_avg;
  }
};

/// LAMB's first half: the moments, and the sums of squares of weight and update.
struct LambMomentsStep : EveryState {
  template <typename S>
  using Scalars = LambScalars<S>;
  static constexpr int kStates = 2;
  static constexpr bool kMovesParam = false;
  static constexpr bool kSplits = true;
  double of_param = 0;
  double of_update = 0;

  template <typename S>
  __device__ void element(S& param, S grad, S& m, S& v, S&, const Scalars<S>& h) {
    const LambElement<S> s = lamb_moments(LambElement<S>{param, m, v}, grad, h);
    m = s.exp_avg;
    v = s.exp_avg_sq;
    const auto p = static_cast<double>(s.param);
    const auto u = static_cast<double>(lamb_update(s, h));
    of_param += p * p;
    of_update += u * u;
  }
};

/// LAMB's second half: the weight, by the update that follows from the moments.
struct LambApplyStep : EveryState {
  template <typename S>
  using Scalars = LambScalars<S>;
  static constexpr int kStates = 2;
  static constexpr bool kMovesParam = true;
  static constexpr bool kSplits = true;

  template <typename H>
  __device__ static bool writes(int, const H&) {
    return false;
  }
  template <typename S>
  __device__ void element(S& param, S, S& m, S& v, S&, const Scalars<S>& h) {
    param = param - lamb_update(LambElement<S>{param, m, v}, h) * h.rate;
  }
};

}  // namespace mezzo::kernels::cuda
