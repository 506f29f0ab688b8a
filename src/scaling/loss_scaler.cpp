#include "scaling/loss_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bridge/host.h"
#include "core/scalar_type.h"
#include "scaling/to_device.h"

namespace mezzo::scaling {

LossScaler::LossScaler(ScaleRules rules, double initial) : rules_(rules) {
  state_.scale = first_scale(initial, rules_);
  scale_ = at::full({}, state_.scale, at::kFloat);
  unskipped_ = at::zeros({}, at::kInt);
  stuck_ = at::zeros({}, at::kInt);
}

void LossScaler::to(at::Device device) {
  if (device == scale_.device()) return;
  pull();
  scale_ = scale_.to(device);
  unskipped_ = unskipped_.to(device);
  stuck_ = stuck_.to(device);
  push();
}

bool LossScaler::on_host() const {
  return bridge::is_host(device());
}

ScaleValue LossScaler::value() const {
  // A static scale is known to the host wherever it lives.
  const bool known = on_host() || !rules_.dynamic;
  return known ? ScaleValue{state_.scale} : ScaleValue{0, scale_.clone()};
}

at::Tensor LossScaler::multiply(const at::Tensor& tensor) const {
  const at::Tensor wide = is_low(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
  if (on_host()) return wide.mul(multiplier(state_.scale));
  return wide.mul(to_device(scale_, wide.device()).clone());
}

at::Tensor LossScaler::inverse() const {
  if (on_host()) return at::full({}, 1.0 / multiplier(state_.scale), at::kDouble);
  return scale_.to(at::kDouble).reciprocal();
}

void LossScaler::update(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  if (on_host()) {
    state_ = advance(state_, found_inf.item<double>() != 0.0, rules_);
    return;
  }
  const at::Tensor found = found_inf.to(device(), at::kFloat).reshape({});
  stale_ = true;
  if (!rules_.dynamic) {
    unskipped_.copy_(at::where(found.ne(0), at::zeros_like(unskipped_), unskipped_.add(1)));
    return;
  }
  stuck_.copy_(at::where(found.ne(0).logical_and(scale_.le(rules_.floor)), stuck_.add(1),
                         at::zeros_like(stuck_)));
  at::_amp_update_scale_(scale_, unskipped_, found, rules_.growth, rules_.backoff,
                         rules_.growth_interval);
  scale_.clamp_(rules_.floor, rules_.ceiling);
}

ScaleState LossScaler::state() const {
  pull();
  return state_;
}

void LossScaler::set_state(const ScaleState& state) {
  state_ = state;
  stale_ = false;
  push();
}

void LossScaler::pull() const {
  if (!stale_) return;
  if (rules_.dynamic) state_.scale = scale_.item<float>();
  state_.unskipped = unskipped_.item<int>();
  state_.stuck_at_floor = stuck_.item<int>();
  stale_ = false;
}

void LossScaler::push() {
  if (on_host()) return;
  const at::NoGradGuard no_grad;
  scale_.fill_(state_.scale);
  unskipped_.fill_(state_.unskipped);
  stuck_.fill_(state_.stuck_at_floor);
}

}  // namespace mezzo::scaling
