// The state behind an AmpHandle.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "amp/interface_use.h"
#include "amp/loss_scope.h"
#include "amp/optimizer_state.h"
#include "amp/properties.h"
#include "casting/scope.h"
#include "casting/weights.h"
#include "mezzo/legacy_amp.h"

namespace mezzo::amp::legacy::detail {

/// A handle: its casts, and the scale of bare optimizers.
struct HandleState {
  explicit HandleState(const InitOptions& wanted);

  /// Opens the casts on this thread.
  void open();
  /// ... and ends them.
  void end();

  InitOptions options;
  Options level;                  // O1 with the handle's scale
  mezzo::amp::detail::Plan plan;  // the same, resolved
  scaling::ScaleState scale;      // of AmpHandle::scale_loss
  std::exception_ptr pending;     // what the end of a scope met
  bool has_wrapped = false;
  std::atomic<bool> closed = false;  // its handle is gone
  std::thread::id thread = std::this_thread::get_id();

  std::optional<mezzo::amp::detail::InterfaceUse> use;
  std::optional<casting::WeightKeeping> keeping;
  std::optional<casting::LastingScope> lasting;
  std::optional<casting::Scope> casts;
  std::optional<casting::Disabled> no_casts;
};

/// Scaling for one optimizer: O1's, without a network.
std::shared_ptr<mezzo::amp::detail::Session> session_of(const HandleState& handle,
                                                        torch::optim::Optimizer& optimizer,
                                                        int num_losses);

/// The state of the only optimizer, which keeps the session alive.
std::shared_ptr<mezzo::amp::detail::OptimizerState> only_optimizer(
    const std::shared_ptr<mezzo::amp::detail::Session>& session);

struct WrapperState {
  std::shared_ptr<mezzo::amp::detail::OptimizerState> optimizer;
  int num_loss = 1;
  int next_loss = 0;
};

}  // namespace mezzo::amp::legacy::detail
