#include "scaling/loss_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bridge/device.h"
#include "bridge/host.h"
#include "core/raise.h"
#include "core/scalar_type.h"
#include "scaling/to_device.h"

namespace mezzo::scaling {
namespace {

constexpr const char* kInLossScaler = "loss scale";

}  // namespace

LossScaler::LossScaler(ScaleRules rules, double initial) : rules_(rules) {
  state_.scale = first_scale(initial, rules_);
  scale_ = at::full({}, state_.scale, at::kFloat);
  unskipped_ = at::zeros({}, at::kInt);
  stuck_ = at::zeros({}, at::kInt);
}

void LossScaler::to(at::Device device) {
  if (device == scale_.device()) return;
  if (bridge::current_capture(device) != 0 || bridge::current_capture(scale_.device()) != 0) {
    raise(kInLossScaler, "the loss scale is on ", scale_.device(), " and would move to ", device,
          " while a graph is captured: make one ordinary step there before the capture");
  }
  pull();
  scale_ = scale_.to(device);
  unskipped_ = unskipped_.to(device);
  stuck_ = stuck_.to(device);
  captured_ = false;
  push();
}

bool LossScaler::on_host() const {
  return bridge::is_host(device());
}

/// A scale that graphs move is copied each time: in a capture the copy belongs to the replay, and
/// elsewhere nobody knows whether there was one since.
at::Tensor LossScaler::copy_of_now() const {
  if (captured_ || bridge::current_capture(device()) != 0) return scale_.clone();
  if (!now_.defined()) now_ = scale_.clone();
  return now_;
}

ScaleValue LossScaler::value() const {
  // A static scale is known to the host wherever it lives.
  const bool known = on_host() || !rules_.dynamic;
  return known ? ScaleValue{state_.scale} : ScaleValue{0, copy_of_now()};
}

at::Tensor LossScaler::multiply(const at::Tensor& tensor) const {
  const at::Tensor wide = is_low(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
  if (on_host()) return wide.mul(multiplier(state_.scale));
  return wide.mul(to_device(copy_of_now(), wide.device()));
}

at::Tensor LossScaler::inverse() const {
  if (on_host() || !rules_.dynamic) {
    return at::full({}, 1.0 / multiplier(state_.scale),
                    at::TensorOptions(device()).dtype(at::kDouble));
  }
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
  captured_ = captured_ || bridge::current_capture(device()) != 0;
  now_.reset();
  if (bridge::cuda_kernels(device()) != nullptr) {
    bridge::update_scale(scale_, unskipped_, stuck_, found,
                         {rules_.growth, rules_.backoff, rules_.floor, rules_.ceiling,
                          rules_.growth_interval, rules_.dynamic});
  } else {
    update_by_operators(found);
  }
}

void LossScaler::update_by_operators(const at::Tensor& found) {
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

void LossScaler::refuse_in_capture(const char* what) const {
  if (bridge::current_capture(device()) == 0) return;
  raise(kInLossScaler, "the loss scale cannot be ", what,
        " while a graph is captured, since nothing has run: do it before the capture or after a "
        "replay");
}

ScaleState LossScaler::state() const {
  pull();
  return state_;
}

void LossScaler::set_state(const ScaleState& state) {
  refuse_in_capture("set");
  state_ = state;
  stale_ = false;
  push();
}

void LossScaler::pull() const {
  if (!stale_ && !captured_) return;
  refuse_in_capture("read");
  if (rules_.dynamic) state_.scale = scale_.item<float>();
  state_.unskipped = unskipped_.item<int>();
  state_.stuck_at_floor = stuck_.item<int>();
  stale_ = false;
}

void LossScaler::push() {
  if (on_host()) return;
  const at::NoGradGuard no_grad;
  now_.reset();
  scale_.fill_(state_.scale);
  unskipped_.fill_(state_.unskipped);
  stuck_.fill_(state_.stuck_at_floor);
}

}  // namespace mezzo::scaling
