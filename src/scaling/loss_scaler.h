// One loss scale with its counters, kept where the gradients are.
#pragma once

#include "core/torch.h"
#include "scaling/scale_state.h"

namespace mezzo::scaling {

/// A scale as it was at some moment: a number on hosts, else a float of the device.
struct ScaleValue {
  double number = 1;
  at::Tensor there = {};

  /// Reads the device, and waits for it, where the scale is there.
  double read() const {
    return there.defined() ? static_cast<double>(there.item<float>()) : number;
  }
};

/// The scale of one loss. On CPUs the state is ordinary numbers; on other devices it lives in small
/// tensors there, moves by operators and is read only when somebody asks for it, so that a training
/// step does not wait.
///
/// Threads: belongs to one training loop.
class LossScaler {
 public:
  /// Begins with `first_scale(initial, rules)`.
  LossScaler(ScaleRules rules, double initial);

  const ScaleRules& rules() const noexcept { return rules_; }

  /// Does it multiply by 1 for ever?
  bool is_one() const noexcept { return !rules_.dynamic && state_.scale == 1.0; }

  /// Moves the flags and the scale to the device where the gradients are.
  void to(at::Device device);
  at::Device device() const { return scale_.device(); }
  /// Are scale and counters ordinary numbers?
  bool on_host() const;

  /// The scale of now.
  ScaleValue value() const;
  /// Overflows in a row at the floor, up to now: an int on the device, which moves with the scale.
  const at::Tensor& stuck() const { return stuck_; }

  /// tensor * scale, in float at least (a low-precision product would overflow); autograd sees it.
  /// The graph keeps the scale of now: later updates do not disturb it.
  at::Tensor multiply(const at::Tensor& tensor) const;

  /// 1 / what `multiply` multiplies by, a double of no dimension: gradients of double weights are
  /// divided as exactly as they were multiplied.
  at::Tensor inverse() const;

  /// Counts a pass: `found_inf` (one element) is not zero if it overflowed. Reads it on CPUs
  /// only.
  ///
  /// Note [Captured scales]: an update that is captured in a graph moves the scale at each replay,
  /// of which the host hears nothing. From then on the device alone knows the state.
  void update(const at::Tensor& found_inf);

  /// The state, read from the device if it lives there. Throws Error while work there is captured,
  /// and so does `set_state`.
  ScaleState state() const;
  void set_state(const ScaleState& state);

 private:
  void pull() const;
  void push();
  void refuse_in_capture(const char* what) const;
  at::Tensor copy_of_now() const;
  void update_by_operators(const at::Tensor& found);

  ScaleRules rules_;
  mutable ScaleState state_;
  mutable bool stale_ = false;  // the device knows more than state_
  bool captured_ = false;       // graphs move it: it is stale for ever
  at::Tensor scale_;            // float
  at::Tensor unskipped_;        // int
  at::Tensor stuck_;            // int
  mutable at::Tensor now_ =
      {};  // a copy of scale_ since it moved last; undefined: none was asked for
};

}  // namespace mezzo::scaling
