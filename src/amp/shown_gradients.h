// The gradients of masters, shown by the low weights in front of them.
#pragma once

#include <memory>
#include <vector>

#include "amp/weight_table.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

class OptimizerState;
class Session;

/// Note [Gradients that weights show]: outside scopes and steps, a weight with a master has the
/// master's gradient, the same float tensor. A program that logs, clips or clears the gradients of
/// `net->parameters()` then does so to the gradients of the step. Inside scopes and steps, a weight
/// has only what a backward pass left there. A view into a bucket of a reducer waits aside.
class ShownGradients {
 public:
  using Optimizers = std::vector<std::unique_ptr<OptimizerState>>;

  /// From here on gradients are shown. Without this call nothing is: older interfaces unscale
  /// gradients that plain backward passes leave with the weights.
  void begin(const Optimizers& optimizers);

  bool hidden() const noexcept { return hidden_ > 0; }

  /// Hands the program's changes of gradients in the meantime to the masters. Nests: gradients are
  /// shown again by as many calls of `show`.
  void hide();
  void show(const Optimizers& optimizers);

 private:
  struct Shown {
    Weight* weight;
    at::Tensor gradient;
    at::Tensor bucket;  // what the weight had in its place
    void take_back();
  };

  bool begun_ = false;
  int hidden_ = 0;
  std::vector<Shown> shown_;
};

/// Gradients are hidden while one lives.
class HiddenGradients {
 public:
  explicit HiddenGradients(Session& session);
  ~HiddenGradients();
  HiddenGradients(const HiddenGradients&) = delete;
  HiddenGradients& operator=(const HiddenGradients&) = delete;

 private:
  Session& session_;
};

}  // namespace mezzo::amp::detail
