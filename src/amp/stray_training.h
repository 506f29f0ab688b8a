// Notices an optimizer that trains a network's weights, and that `initialize` was not given.
#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "amp/weight_table.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

class Session;

/// Low weights without a master, at a level that keeps masters: such an optimizer steps 16-bit
/// values, which lose small updates, and by gradients that carry other losses' scales. That is an
/// error. Float weights of a network whose losses are scaled: such an optimizer steps by gradients
/// that nobody divides. One message says so, since the program may do so itself.
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

  /// Watches the network's weights that no optimizer of the session owns. One on which a hook of
  /// the program's own hangs is left out.
  void watch(Session& session, const torch::nn::Module& module);
  void stop() noexcept;

  /// After values of the network were loaded: no optimizer wrote those.
  void note_load();

  /// Before a training call of the network. Throws Error when low weights are trained so.
  void note_training_call();

 private:
  class Hook;
  /// The signs that a weight was written.
  struct Look {
    std::uint32_t version = 0;
    Samples samples{};
  };
  struct Watched {
    at::Tensor weight;
    std::string name;
    std::shared_ptr<std::atomic<bool>> has_gradient;  // since the last training call
    const void* hook;
    Look seen;
  };
  static Look look(const at::Tensor& weight);
  bool is_stray(const at::Tensor& weight) const;
  void tell(const Watched& trained) const;

  Session* session_ = nullptr;
  std::vector<Watched> watched_;
  int rounds_ = 0;  // between training calls in which both was seen
};

}  // namespace mezzo::amp::detail
