// Notices a training that passes the masters by.
#pragma once

#include <atomic>
#include <vector>

#include "core/torch.h"

namespace torch::autograd {
struct PostAccumulateGradHook;
}

namespace mezzo::amp::detail {

class OptimizerState;

/// A loop that kept `loss.backward(); sgd.step();` leaves gradients with low weights, and their
/// masters stand still. Backward passes are watched until the optimizer's first scope or step of
/// the handle; after that nothing is left of the watch.
class PlainTraining {
 public:
  PlainTraining() = default;
  ~PlainTraining() { stop(); }
  PlainTraining(const PlainTraining&) = delete;
  PlainTraining& operator=(const PlainTraining&) = delete;

  /// Watches the weights that have masters. A weight on which a hook of the program's own hangs is
  /// left out.
  void watch(OptimizerState& optimizer);
  void stop() noexcept;

  /// Before a call of a network whose weights the optimizer owns. Before a training call: throws
  /// Error if the masters miss gradients that are there, or if plain backward passes followed
  /// training calls twice. A single one may be a look at gradients.
  void note_call(bool trains);

 private:
  class Hook;
  struct Watched {
    at::Tensor weight;
    const torch::autograd::PostAccumulateGradHook* hook;
  };

  void check();

  OptimizerState* optimizer_ = nullptr;
  std::vector<Watched> watched_;
  std::atomic<bool> trains_ = false;        // the last call was one of training
  std::atomic<bool> saw_backward_ = false;  // after one, since the last training call
  int backwards_ = 0;                       // training calls that one followed
};

}  // namespace mezzo::amp::detail
