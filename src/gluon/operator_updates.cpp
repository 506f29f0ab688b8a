#include "gluon/operator_updates.h"

#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

namespace mezzo::gluon {
namespace {

/// The gradient as MXNet's kernels begin: multiplied, then cut off.
at::Tensor prepared(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& grad) {
  at::Tensor scaled = grad.mul(now.rescale);
  if (hyper.clips()) scaled.clamp_(-hyper.clip_gradient, hyper.clip_gradient);
  return scaled;
}

/// ... with the decay added before it is cut off, as Adam and RMSProp do.
at::Tensor decayed_then_cut(const Hyper& hyper, const ParameterNumbers& now,
                            const at::Tensor& weight, const at::Tensor& grad) {
  at::Tensor scaled = grad.mul(now.rescale);
  if (now.wd != 0) scaled.add_(weight, now.wd);
  if (hyper.clips()) scaled.clamp_(-hyper.clip_gradient, hyper.clip_gradient);
  return scaled;
}

void advance_moments(const Hyper& hyper, const at::Tensor& grad, std::vector<at::Tensor>& state) {
  state[0].mul_(hyper.beta1).add_(grad, rest_of(hyper.beta1));
  state[1].mul_(hyper.beta2).addcmul_(grad, grad, rest_of(hyper.beta2));
}

/// lr with the correction of both moments' bias in it; epsilon is beside the uncorrected root.
double corrected_rate(const Hyper& hyper, const ParameterNumbers& now) {
  const auto t = static_cast<double>(now.count);
  return now.lr * std::sqrt(1 - std::pow(hyper.beta2, t)) / (1 - std::pow(hyper.beta1, t));
}

void cut_weights(const Hyper& hyper, const at::Tensor& weight) {
  if (hyper.clip_weights > 0) weight.clamp_(-hyper.clip_weights, hyper.clip_weights);
}

}  // namespace

// State: -1 times MXNet's momentum, as the fused kernel keeps it.
void sgd_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                      const at::Tensor& grad, std::vector<at::Tensor>& state) {
  at::Tensor step = prepared(hyper, now, grad);
  if (now.wd != 0) step.add_(weight, now.wd);
  step.mul_(now.lr);
  if (!state.empty()) step = state[0].mul_(hyper.momentum).add_(step);
  weight.sub_(step);
}

void nag_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                      const at::Tensor& grad, std::vector<at::Tensor>& state) {
  const at::Tensor cut = prepared(hyper, now, grad);
  at::Tensor move = cut.add(weight, now.wd).mul_(-now.lr);
  if (state.empty()) {
    weight.add_(move);
    return;
  }
  const at::Tensor& momentum = state[0];
  momentum.mul_(hyper.momentum);
  weight.sub_(momentum).add_(move.add_(momentum), hyper.momentum + 1);
  // The kernel of 1.9.1 has written the weight by now, so that this decay sees the new one.
  momentum.sub_(cut.add(weight, now.wd), now.lr);
}

void adam_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                       const at::Tensor& grad, std::vector<at::Tensor>& state) {
  advance_moments(hyper, decayed_then_cut(hyper, now, weight, grad), state);
  weight.addcdiv_(state[0], state[1].sqrt().add_(hyper.epsilon), -corrected_rate(hyper, now));
}

void adamw_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                        const at::Tensor& grad, std::vector<at::Tensor>& state) {
  advance_moments(hyper, prepared(hyper, now, grad), state);
  const double lr = hyper.correct_bias != 0 ? corrected_rate(hyper, now) : now.lr;
  weight.mul_(1 - lr * now.wd).addcdiv_(state[0], state[1].sqrt().add_(hyper.epsilon), -lr);
}

void adagrad_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                          const at::Tensor& grad, std::vector<at::Tensor>& state) {
  const at::Tensor cut = prepared(hyper, now, grad);
  state[0].addcmul_(cut, cut);
  const at::Tensor denominator = state[0].add(hyper.epsilon).sqrt_();
  weight.mul_(1 - now.lr * now.wd).addcdiv_(cut, denominator, -now.lr);
}

void rmsprop_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                          const at::Tensor& grad, std::vector<at::Tensor>& state) {
  const at::Tensor cut = decayed_then_cut(hyper, now, weight, grad);
  state[0].mul_(hyper.gamma1).addcmul_(cut, cut, rest_of(hyper.gamma1));
  if (state.size() == 1) {
    weight.addcdiv_(cut, state[0].add(hyper.epsilon).sqrt_(), -now.lr);
  } else {
    state[1].mul_(hyper.gamma1).add_(cut, rest_of(hyper.gamma1));
    const at::Tensor variance = state[0].addcmul(state[1], state[1], -1).add_(hyper.epsilon);
    state[2].mul_(hyper.gamma2).addcdiv_(cut, variance.sqrt_(), -now.lr);
    weight.add_(state[2]);
  }
  cut_weights(hyper, weight);
}

double lamb_ratio(const Hyper& hyper, double weight_norm, double update_norm) {
  if (hyper.lower_bound > 0) weight_norm = std::max(weight_norm, hyper.lower_bound);
  if (hyper.upper_bound > 0) weight_norm = std::min(weight_norm, hyper.upper_bound);
  return weight_norm == 0 || update_norm == 0 ? 1.0 : weight_norm / update_norm;
}

void lamb_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                       const at::Tensor& grad, std::vector<at::Tensor>& state) {
  advance_moments(hyper, prepared(hyper, now, grad), state);
  const auto t = static_cast<double>(now.count);
  const bool corrects = hyper.bias_correction != 0;
  const double bias1 = corrects ? 1 - std::pow(hyper.beta1, t) : 1.0;
  const double bias2 = corrects ? 1 - std::pow(hyper.beta2, t) : 1.0;
  at::Tensor update = state[0].div(bias1).div_(state[1].div(bias2).sqrt_().add_(hyper.epsilon));
  update.add_(weight, now.wd);
  // Stays on the device: no host read for each parameter.
  at::Tensor weight_norm = weight.norm();
  if (hyper.lower_bound > 0) weight_norm = weight_norm.clamp_min(hyper.lower_bound);
  if (hyper.upper_bound > 0) weight_norm = weight_norm.clamp_max(hyper.upper_bound);
  const at::Tensor update_norm = update.norm();
  const at::Tensor none = weight_norm.eq(0).logical_or_(update_norm.eq(0));
  const at::Tensor ratio = weight_norm.div(update_norm).masked_fill_(none, 1);
  weight.sub_(update.mul_(ratio.mul(now.lr)));
}

// State: -1 times MXNet's momentum.
void signum_by_operators(const Hyper& hyper, const ParameterNumbers& now, const at::Tensor& weight,
                         const at::Tensor& grad, std::vector<at::Tensor>& state) {
  const at::Tensor cut = prepared(hyper, now, grad);
  if (state.empty()) {
    weight.mul_(1 - now.lr * now.wd).add_(cut.sign(), -now.lr);
    return;
  }
  state[0].mul_(hyper.momentum).add_(cut.add(weight, now.wd), rest_of(hyper.momentum));
  weight.mul_(1 - now.lr * hyper.wd_lh).add_(state[0].sign(), -now.lr);
}

}  // namespace mezzo::gluon
