// Loss scaling for loops that keep their own optimizer: the interface of torch.amp.GradScaler.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/step_result.h"

namespace mezzo::amp {

/// How a GradScaler starts and moves; the defaults are those of torch.amp.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< after `growth_interval` clean updates in a row; above 1
  double backoff_factor = 0.5;  ///< after an overflow; between 0 and 1
  int growth_interval = 2000;
  bool enabled = true;  ///< false: nothing is scaled, checked or skipped
};

/// The state that a scaler needs to continue.
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  int growth_interval = 0;
  int growth_tracker = 0;

  friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

/// Scales losses, unscales gradients, and steps an optimizer only where all gradients are finite:
///
///   scaler.scale(loss).backward();
///   scaler.unscale_(sgd);  // optional, to clip
///   scaler.step(sgd);
///   scaler.update();
///
/// The scale lives where the gradients are. On CUDA a step of ours needs no wait; that of another
/// optimizer one. Threads: belongs to one training loop.
class MEZZO_API GradScaler {
 public:
  /// Throws ConfigError for factors and intervals that cannot work.
  explicit GradScaler(GradScalerOptions options = {});
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;
  ~GradScaler();

  /// tensor * scale, in float at least and seen by autograd.
  at::Tensor scale(const at::Tensor& tensor);
  std::vector<at::Tensor> scale(at::TensorList tensors);

  /// Divides the optimizer's gradients by the scale, in place, and checks them; once, however often
  /// a parameter is listed. Once between two updates: a second call, or one after `step`, throws
  /// Error, as does one for gradients of losses that were not scaled: without any `scale` since the
  /// last update. Throws ConfigError for a gradient that is neither dense nor sparse COO, and
  /// changes nothing: it may be called again.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Unscales if `unscale_` was not called, and steps where all gradients are finite. Twice without
  /// `update`, or without `scale` since the last one: Error.
  StepResult step(torch::optim::Optimizer& optimizer);

  /// Moves the scale by what the steps since the last update found, or to `new_scale`. Without any
  /// step: Error.
  void update(std::optional<double> new_scale = {});

  /// The scale now; 1 if disabled. Reads it where it lives on a device.
  double get_scale() const;
  bool is_enabled() const;

  /// The scale and its counters. Reads them where they live on a device.
  GradScalerState state_dict() const;

  /// Throws Error, and changes nothing, for values that no scaler has.
  void load_state_dict(const GradScalerState& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mezzo::amp
