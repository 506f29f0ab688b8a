// The settings of an optimizer for a group of parameters, and the numbers that follow from them for
// one step of one parameter. For host and device: where step counters live on a device, the numbers
// are computed there.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/elements.h"

namespace mezzo::kernels {

// Recipes are compared as bytes: they have no padding.

/// The factor of gradients with which their norm is at most `most`; 0 is no bound. A norm
/// that is not finite passes through, so that the damage shows instead of hiding.
MEZZO_HD static inline double clip_factor(double norm, double most) {
  return most > 0 && !(norm <= most) ? most / (norm + 1e-6) : 1.0;
}

struct AdamRecipe {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_grad_norm = 0;
  bool decoupled = true, bias_correction = true, amsgrad = false, eps_inside_sqrt = false;
  bool unused[4] = {};
};

/// `step` counts from 1; `grad_scale` multiplies the gradient beside the inverse scale.
MEZZO_HD static inline AdamScalars<double> scalars_at(const AdamRecipe& r, std::int64_t step,
                                                      double grad_scale) {
  const double t = static_cast<double>(step);
  const double bias1 = r.bias_correction ? 1 - pow(r.beta1, t) : 1.0;
  const double bias2 = r.bias_correction ? 1 - pow(r.beta2, t) : 1.0;
  AdamScalars<double> h{};
  h.beta1 = r.beta1;
  h.one_minus_beta1 = 1 - r.beta1;
  h.beta2 = r.beta2;
  h.one_minus_beta2 = 1 - r.beta2;
  h.step_size = r.lr / bias1;
  h.inv_sqrt_bias2 = 1 / sqrt(bias2);
  h.eps = r.eps;
  h.keep = r.decoupled ? 1 - r.lr * r.weight_decay : 1.0;
  h.l2 = r.decoupled ? 0.0 : r.weight_decay;
  h.grad_scale = grad_scale;
  h.amsgrad = r.amsgrad;
  h.eps_inside_sqrt = r.eps_inside_sqrt;
  return h;
}

struct SgdRecipe {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0, max_grad_norm = 0;
  bool nesterov = false, decay_after_momentum = false;
  bool unused[6] = {};
};

MEZZO_HD static inline SgdScalars<double> scalars_at(const SgdRecipe& r, std::int64_t step,
                                                     double grad_scale) {
  SgdScalars<double> h{};
  h.lr = r.lr;
  h.momentum = r.momentum;
  h.one_minus_dampening = 1 - r.dampening;
  h.weight_decay = r.weight_decay;
  h.grad_scale = grad_scale;
  h.nesterov = r.nesterov;
  h.decay_after_momentum = r.decay_after_momentum;
  h.first = step == 1;
  return h;
}

struct AdagradRecipe {
  double lr = 0, lr_decay = 0, eps = 0, weight_decay = 0, max_grad_norm = 0;
  bool decoupled = false;
  bool unused[7] = {};
};

MEZZO_HD static inline AdagradScalars<double> scalars_at(const AdagradRecipe& r, std::int64_t step,
                                                         double grad_scale) {
  AdagradScalars<double> h{};
  h.lr = r.lr / (1 + static_cast<double>(step - 1) * r.lr_decay);
  h.eps = r.eps;
  h.keep = r.decoupled ? 1 - h.lr * r.weight_decay : 1.0;
  h.l2 = r.decoupled ? 0.0 : r.weight_decay;
  h.grad_scale = grad_scale;
  return h;
}

struct LambRecipe {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_grad_norm = 0;
  bool decoupled = true, bias_correction = true, grad_averaging = true, always_adapts = false;
  bool unused[4] = {};
};

/// `rate` is left to lamb_rate().
MEZZO_HD static inline LambScalars<double> scalars_at(const LambRecipe& r, std::int64_t step,
                                                      double grad_scale) {
  const double t = static_cast<double>(step);
  LambScalars<double> h{};
  h.beta1 = r.beta1;
  h.beta3 = r.grad_averaging ? 1 - r.beta1 : 1.0;
  h.beta2 = r.beta2;
  h.one_minus_beta2 = 1 - r.beta2;
  h.inv_bias1 = r.bias_correction ? 1 / (1 - pow(r.beta1, t)) : 1.0;
  h.inv_sqrt_bias2 = r.bias_correction ? 1 / sqrt(1 - pow(r.beta2, t)) : 1.0;
  h.eps = r.eps;
  h.decoupled = r.decoupled ? r.weight_decay : 0.0;
  h.l2 = r.decoupled ? 0.0 : r.weight_decay;
  h.grad_scale = grad_scale;
  return h;
}

/// lr times the trust ratio of a tensor, from the norms of its weight and its update.
MEZZO_HD static inline double lamb_rate(const LambRecipe& r, double param_norm,
                                        double update_norm) {
  const bool adapts = r.weight_decay != 0 || r.always_adapts;
  return !adapts || param_norm == 0 || update_norm == 0 ? r.lr : r.lr * param_norm / update_norm;
}

struct NovogradRecipe {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_grad_norm = 0;
  bool bias_correction = true, grad_averaging = true, decay_inside_moment = false;
  bool init_zero = false, largest = false;  // largest: norms are largest magnitudes
  bool unused[3] = {};
};

/// The running norm after a step's gradient, whose own norm is `now`. `before` is not read at the
/// first step.
MEZZO_HD static inline double novograd_norm(const NovogradRecipe& r, std::int64_t step,
                                            double before, double now) {
  if (step == 1) before = r.init_zero ? 0.0 : now;
  if (r.largest) return r.beta2 * before + (1 - r.beta2) * now;
  return sqrt(r.beta2 * before * before + (1 - r.beta2) * now * now);
}

MEZZO_HD static inline NovogradScalars<double> scalars_at(const NovogradRecipe& r,
                                                          std::int64_t step, double norm,
                                                          double grad_scale) {
  const double t = static_cast<double>(step);
  const double bias2 = r.bias_correction ? sqrt(1 - pow(r.beta2, t)) : 1.0;
  NovogradScalars<double> h{};
  h.beta1 = r.beta1;
  h.beta3 = r.grad_averaging ? 1 - r.beta1 : 1.0;
  h.inv_bias1 = r.bias_correction ? 1 / (1 - pow(r.beta1, t)) : 1.0;
  h.inv_denominator = 1 / (norm / bias2 + r.eps);
  h.lr = r.lr;
  h.weight_decay = r.weight_decay;
  h.grad_scale = grad_scale;
  h.decay_inside_moment = r.decay_inside_moment;
  return h;
}

}  // namespace mezzo::kernels
