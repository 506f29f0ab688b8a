// The first interface of Apex Amp, before `initialize`: a handle that casts everything on its
// thread. Deprecated; programs that have it keep working.
//
//   auto handle = mezzo::amp::legacy::init();
//   handle.scale_loss(loss, sgd).backward();
//   sgd.step();
//
// New programs delete `init` and call amp::initialize (amp.h) at O1, which trains the same to the
// last bit. The two cannot be mixed.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>

#include "mezzo/autocast.h"
#include "mezzo/export.h"
#include "mezzo/loss_scale.h"
#include "mezzo/policy.h"
#include "mezzo/scaled_loss.h"

namespace mezzo::amp::legacy {

/// Options of a handle.
struct InitOptions {
  /// False: the handle casts, scales and checks nothing, and while it lives nor does one around it.
  bool enabled = true;

  /// A number or "dynamic": of `AmpHandle::scale_loss`, and where the losses of wrapped optimizers
  /// begin.
  LossScale loss_scale = "dynamic";

  /// Cast a weight once for its uses until it changes. False: at each use.
  bool enable_caching = true;

  /// Tells each cast.
  bool verbose = false;

  /// Operators that `policy` bans run in float instead of being errors. The default lists ban
  /// nothing: binary_cross_entropy, which Apex bans, always runs in float.
  bool allow_banned = false;

  /// The class of every operator while the handle lives; Policy::defaults(at::kHalf) without one. A
  /// policy for another type than float16 is a ConfigError.
  std::optional<Policy> policy = {};
};

namespace detail {
struct HandleState;
struct WrapperState;
}  // namespace detail

/// A bare optimizer with one scale for each of its losses. A cheap handle: copies share. The
/// optimizer must outlive it; the AmpHandle need not.
class MEZZO_API OptimWrapper {
 public:
  explicit OptimWrapper(std::shared_ptr<detail::WrapperState> state);

  /// Scales the next loss of this step; its gradients add to those of the earlier ones. Throws
  /// Error for one more than `num_loss`.
  [[nodiscard]] ScaledLoss scale_loss(const at::Tensor& loss);

  /// Steps, unless a loss since the last step overflowed. The next loss is the first again.
  void step();

  /// The optimizer's own.
  void zero_grad(bool set_to_none = true);

  /// For everything else that the optimizer can do.
  torch::optim::Optimizer& inner();

 private:
  std::shared_ptr<detail::WrapperState> state_;
};

/// While it lives, O1's operator casts hold on the thread that made it, for calls of bare networks
/// too. Handles nest, the inner one rules. Destroy it on its thread.
class MEZZO_API AmpHandle {
 public:
  explicit AmpHandle(std::shared_ptr<detail::HandleState> state);
  /// The new one casts on; the old one ends without effect.
  AmpHandle(AmpHandle&&) noexcept;
  AmpHandle& operator=(AmpHandle&&) noexcept;
  ~AmpHandle();

  /// Are operators cast here and now? Not inside DisableCasts.
  bool is_active() const;

  /// Gives an optimizer its own scales. From then on the handle's `scale_loss` is an error. Throws
  /// ConfigError for fewer than one loss, and for an optimizer that is wrapped already.
  OptimWrapper wrap_optimizer(torch::optim::Optimizer& optimizer, int num_loss = 1);

  /// Scales a loss. Leaving the scope, or closing it, unscales the optimizer's gradients; after an
  /// overflow it drops those that are there, so that the optimizer's own `step` moves nothing of
  /// that loss and of earlier ones. It would step by the gradients of a later loss: with several
  /// losses or micro-batches before a step use `wrap_optimizer(optimizer, num_loss)`, which skips.
  [[nodiscard]] ScaledLoss scale_loss(const at::Tensor& loss, torch::optim::Optimizer& optimizer);

  /// Are low-precision copies of weights kept?
  bool has_cache() const;

  /// The copies of all weights are freed, and made anew at their next use.
  void clear_cache();

  /// The copies of this weight are freed.
  void remove_cache(const at::Tensor& param);

  /// Was it asked to report each cast?
  bool verbose() const;

 private:
  void close() noexcept;

  std::shared_ptr<detail::HandleState> state_;
};

/// Opens a handle. Operators that are registered later are not part of it. Throws ConfigError while
/// a network that amp::initialize returned is alive.
[[nodiscard]] MEZZO_API AmpHandle init(const InitOptions& options = {});

// One set of annotations for both interfaces.
using amp::float_function;
using amp::half_function;
using amp::promote_function;
using amp::register_float_function;
using amp::register_half_function;
using amp::register_promote_function;

}  // namespace mezzo::amp::legacy
