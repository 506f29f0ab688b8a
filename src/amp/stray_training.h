// Notices an optimizer that trains a network's low weights, and that `initialize` was not given.
#pragma once

#include <torch/nn/module.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/torch.h"

namespace mezzo::amp::detail {

class Session;

/// Low weights without a master, at a level that keeps masters: such an optimizer steps 16-bit
/// values, which lose small updates, and by gradients that carry other losses' scales.
///
/// Gradients alone are no training, and neither are values that change alone: an attack on inputs
/// leaves the first, averages of weights do the second. Both between two training calls, and twice,
/// are.
class StrayTraining {
 public:
  StrayTraining() = default;
  ~StrayTraining() { stop(); }
  StrayTraining(const StrayTraining&) = delete;
  StrayTraining& operator=(const StrayTraining&) = delete;

  /// Watches the network's low weights that have no master. One on which a hook of the program's
  /// own hangs is left out.
  void watch(Session& session, const torch::nn::Module& module);
  void stop() noexcept;

  /// After values of the network were loaded: no optimizer wrote those.
  void note_load();

  /// Before a training call of the network. Throws Error when such weights are trained.
  void note_training_call();

 private:
  class Hook;
  /// The signs that a weight was written.
  struct Look {
    std::uint32_t version = 0;
    std::array<std::uint16_t, 3> bits{};  // on hosts: the first value, the middle and the last
  };
  struct Watched {
    at::Tensor weight;
    std::string name;
    std::shared_ptr<std::atomic<bool>> has_gradient;  // since the last training call
    const void* hook;
    Look seen;
  };
  static Look look(const at::Tensor& weight);

  Session* session_ = nullptr;
  std::vector<Watched> watched_;
  int rounds_ = 0;  // between training calls in which both was seen
};

}  // namespace mezzo::amp::detail
