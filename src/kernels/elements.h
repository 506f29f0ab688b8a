// The arithmetic of one element, for host and device: CPU loops use it with vectors, CUDA kernels
// and the rest of loops with numbers. Everything is static, so that no instruction set's copy
// becomes everybody's.
//
// V is what is computed with: float, double, or a vector of floats; S is its scalar.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define MEZZO_HD __host__ __device__
#else
#define MEZZO_HD
#endif

namespace mezzo::kernels {

MEZZO_HD static inline float square_root(float x) {
  return sqrtf(x);
}
MEZZO_HD static inline double square_root(double x) {
  return sqrt(x);
}
MEZZO_HD static inline float largest(float a, float b) {
  return a > b ? a : b;
}
MEZZO_HD static inline double largest(double a, double b) {
  return a > b ? a : b;
}

/// Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019).
template <typename S>
struct AdamScalars {
  S beta1, one_minus_beta1, beta2, one_minus_beta2;
  S step_size;       // lr / (1 - beta1^t)
  S inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  S eps;
  S keep;        // 1 - lr * weight_decay where the decay is decoupled, else 1
  S l2;          // weight_decay where it is added to the gradient, else 0
  S grad_scale;  // multiplies the gradient beside Guard::inv_scale
  bool amsgrad, eps_inside_sqrt;
};

template <typename T, typename S>
MEZZO_HD static inline AdamScalars<T> scalars(const AdamScalars<S>& h) {
  return {T(h.beta1),     T(h.one_minus_beta1), T(h.beta2), T(h.one_minus_beta2),
          T(h.step_size), T(h.inv_sqrt_bias2),  T(h.eps),   T(h.keep),
          T(h.l2),        T(h.grad_scale),      h.amsgrad,  h.eps_inside_sqrt};
}

template <typename V>
struct AdamElement {
  V param, exp_avg, exp_avg_sq, max_exp_avg_sq;
};

/// sqrt(v) / sqrt(bias2) + eps, or sqrt(v / bias2 + eps).
template <typename V, typename S>
MEZZO_HD static inline V adam_denominator(V second_moment, const AdamScalars<S>& h) {
  if (h.eps_inside_sqrt) {
    return square_root(second_moment * (h.inv_sqrt_bias2 * h.inv_sqrt_bias2) + h.eps);
  }
  return square_root(second_moment) * h.inv_sqrt_bias2 + h.eps;
}

template <typename V, typename S>
MEZZO_HD static inline AdamElement<V> adam_element(AdamElement<V> s, V grad,
                                                   const AdamScalars<S>& h) {
  if (h.l2 != S(0)) grad = grad + s.param * h.l2;
  s.exp_avg = s.exp_avg * h.beta1 + grad * h.one_minus_beta1;
  s.exp_avg_sq = s.exp_avg_sq * h.beta2 + grad * grad * h.one_minus_beta2;
  V second = s.exp_avg_sq;
  if (h.amsgrad) second = s.max_exp_avg_sq = largest(s.max_exp_avg_sq, s.exp_avg_sq);
  s.param = s.param * h.keep - s.exp_avg / adam_denominator(second, h) * h.step_size;
  return s;
}

/// SGD with momentum; `first`: the buffer takes the gradient as it is, whatever it holds.
template <typename S>
struct SgdScalars {
  S lr, momentum, one_minus_dampening, weight_decay, grad_scale;
  bool nesterov, decay_after_momentum, first;
};

template <typename T, typename S>
MEZZO_HD static inline SgdScalars<T> scalars(const SgdScalars<S>& h) {
  return {T(h.lr),         T(h.momentum), T(h.one_minus_dampening), T(h.weight_decay),
          T(h.grad_scale), h.nesterov,    h.decay_after_momentum,   h.first};
}

template <typename V>
struct SgdElement {
  V param, buffer;
};

template <typename V, typename S>
MEZZO_HD static inline SgdElement<V> sgd_element(SgdElement<V> s, V grad, const SgdScalars<S>& h) {
  if (h.weight_decay != S(0) && !h.decay_after_momentum) grad = grad + s.param * h.weight_decay;
  if (h.momentum != S(0)) {
    s.buffer = h.first ? grad : s.buffer * h.momentum + grad * h.one_minus_dampening;
    grad = h.nesterov ? grad + s.buffer * h.momentum : s.buffer;
  }
  if (h.weight_decay != S(0) && h.decay_after_momentum) grad = grad + s.param * h.weight_decay;
  s.param = s.param - grad * h.lr;
  return s;
}

/// Adagrad (Duchi et al. 2011).
template <typename S>
struct AdagradScalars {
  S lr, eps, keep, l2, grad_scale;  // keep and l2 as in AdamScalars
};

template <typename T, typename S>
MEZZO_HD static inline AdagradScalars<T> scalars(const AdagradScalars<S>& h) {
  return {T(h.lr), T(h.eps), T(h.keep), T(h.l2), T(h.grad_scale)};
}

template <typename V>
struct AdagradElement {
  V param, sum;
};

template <typename V, typename S>
MEZZO_HD static inline AdagradElement<V> adagrad_element(AdagradElement<V> s, V grad,
                                                         const AdagradScalars<S>& h) {
  if (h.l2 != S(0)) grad = grad + s.param * h.l2;
  s.sum = s.sum + grad * grad;
  s.param = s.param * h.keep - grad / (square_root(s.sum) + h.eps) * h.lr;
  return s;
}

/// LAMB (You et al. 2020), whose step has two halves: moments and the norms of weight and update,
/// then the update itself, which is computed again from the moments: no memory holds it.
template <typename S>
struct LambScalars {
  S beta1, beta3, beta2, one_minus_beta2;  // beta3: 1 - beta1, or 1 without gradient averaging
  S inv_bias1, inv_sqrt_bias2, eps;
  S decoupled, l2;  // weight decay of the update, or of the gradient
  S grad_scale;
  S rate;  // the second half's: lr times the trust ratio
};

template <typename T, typename S>
MEZZO_HD static inline LambScalars<T> scalars(const LambScalars<S>& h) {
  return {T(h.beta1),     T(h.beta3),          T(h.beta2), T(h.one_minus_beta2),
          T(h.inv_bias1), T(h.inv_sqrt_bias2), T(h.eps),   T(h.decoupled),
          T(h.l2),        T(h.grad_scale),     T(h.rate)};
}

template <typename V>
struct LambElement {
  V param, exp_avg, exp_avg_sq;
};

template <typename V, typename S>
MEZZO_HD static inline LambElement<V> lamb_moments(LambElement<V> s, V grad,
                                                   const LambScalars<S>& h) {
  if (h.l2 != S(0)) grad = grad + s.param * h.l2;
  s.exp_avg = s.exp_avg * h.beta1 + grad * h.beta3;
  s.exp_avg_sq = s.exp_avg_sq * h.beta2 + grad * grad * h.one_minus_beta2;
  return s;
}

template <typename V, typename S>
MEZZO_HD static inline V lamb_update(const LambElement<V>& s, const LambScalars<S>& h) {
  return s.exp_avg * h.inv_bias1 / (square_root(s.exp_avg_sq) * h.inv_sqrt_bias2 + h.eps) +
         s.param * h.decoupled;
}

/// NovoGrad (Ginsburg et al. 2019): one second moment per tensor, so that it comes in as a scalar.
template <typename S>
struct NovogradScalars {
  S beta1, beta3, inv_bias1;
  S inv_denominator;  // 1 / (norm / sqrt(1 - beta2^t) + eps)
  S lr, weight_decay, grad_scale;
  bool decay_inside_moment;
};

template <typename T, typename S>
MEZZO_HD static inline NovogradScalars<T> scalars(const NovogradScalars<S>& h) {
  return {T(h.beta1), T(h.beta3),        T(h.inv_bias1),  T(h.inv_denominator),
          T(h.lr),    T(h.weight_decay), T(h.grad_scale), h.decay_inside_moment};
}

template <typename V>
struct NovogradElement {
  V param, exp_avg;
};

template <typename V, typename S>
MEZZO_HD static inline NovogradElement<V> novograd_element(NovogradElement<V> s, V grad,
                                                           const NovogradScalars<S>& h) {
  if (h.decay_inside_moment) {
    grad = grad * h.inv_denominator + s.param * h.weight_decay;
    s.exp_avg = s.exp_avg * h.beta1 + grad * h.beta3;
    s.param = s.param - s.exp_avg * (h.lr * h.inv_bias1);
  } else {
    s.exp_avg = s.exp_avg * h.beta1 + grad * h.beta3;
    s.param =
        s.param - (s.exp_avg * (h.inv_bias1 * h.inv_denominator) + s.param * h.weight_decay) * h.lr;
  }
  return s;
}

/// How a loss scale moves where the device decides: the rules of scaling/scale_state.h.
struct ScaleRule {
  double growth, backoff, floor, ceiling;
  std::int64_t growth_interval;
  bool dynamic;
};
/// The scale, the clean passes in a row, and the overflows in a row at the floor.
struct ScaleNumbers {
  float scale;
  std::int32_t unskipped, stuck;
};

MEZZO_HD static inline ScaleNumbers update_scale(ScaleNumbers s, bool overflow,
                                                 const ScaleRule& rule) {
  if (!rule.dynamic) return {s.scale, overflow ? 0 : s.unskipped + 1, s.stuck};
  const float floor = static_cast<float>(rule.floor);
  const float ceiling = static_cast<float>(rule.ceiling);
  s.stuck = overflow && s.scale <= floor ? s.stuck + 1 : 0;
  if (overflow) {
    s.unskipped = 0;
    s.scale = static_cast<float>(s.scale * rule.backoff);
  } else if (++s.unskipped >= rule.growth_interval) {
    s.unskipped = 0;
    const float grown = static_cast<float>(s.scale * rule.growth);
    if (grown - grown == 0.0f) s.scale = grown;
  }
  if (s.scale < floor) s.scale = floor;
  if (s.scale > ceiling) s.scale = ceiling;
  return s;
}

}  // namespace mezzo::kernels
