// The inside of a ScaledLoss.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "amp/session.h"
#include "amp/shown_gradients.h"
#include "mezzo/scaled_loss.h"

namespace mezzo::amp::detail {

/// A scope of `scale_loss` between its entrance and its exit.
class LossScope {
 public:
  LossScope(const at::Tensor& loss, const std::vector<std::shared_ptr<OptimizerState>>& optimizers,
            amp::ScaleLossOptions options);
  ~LossScope();
  LossScope(const LossScope&) = delete;
  LossScope& operator=(const LossScope&) = delete;

  const at::Tensor& scaled() const noexcept { return scaled_; }

  /// Calls this once when the scope has ended: without error after the exit work, with the error
  /// that the scope's end met. Not called where the scope was undone.
  void on_exit(std::function<void(std::exception_ptr)> listener) {
    listener_ = std::move(listener);
  }

  /// Throws Error if the exit work is done and another backward pass would leave gradients
  /// scaled.
  void check_open() const;

  /// The exit work, once. Then the scope holds nothing of the optimizers any more.
  void close();

  /// Gradients and optimizers as they were at the entrance, and nothing held of them; nothing after
  /// `close`.
  void undo();

  /// The scope ends here: closes it, or undoes it where an exception is on its way. Keeps errors
  /// for the next step.
  void end() noexcept;

 private:
  void leave();
  void settle_or_defer();
  bool stays_scaled() const;
  std::vector<at::Tensor> gradients_that_ranks_share() const;
  void make_others_skip();
  void release() noexcept;

  std::vector<std::shared_ptr<OptimizerState>> optimizers_;
  std::vector<OptimizerState*> states_;
  Session* session_ = nullptr;  // null: disabled, or released
  amp::ScaleLossOptions options_;
  at::Tensor loss_;
  at::Tensor scaled_;
  std::function<void(std::exception_ptr)> listener_;
  int exceptions_at_entry_;
  bool open_ = false;
  bool was_open_ = false;
  std::int64_t reductions_ = 0;         // of the gradients, at the entrance
  std::deque<HiddenGradients> hidden_;  // of each optimizer's session
};

}  // namespace mezzo::amp::detail
