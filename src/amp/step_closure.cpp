// Steps whose optimizer evaluates the loss itself.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "core/raise.h"

namespace mezzo::detail {
namespace {

constexpr int kMostEvaluations = 20;

/// Leaves the inner optimizer's step when the loss overflows at every scale that was tried.
struct GaveUp {};

/// Parameters and optimizer state at one moment, for optimizers that move them between evaluations.
class Backup {
 public:
  explicit Backup(OptimizerState& optimizer) : optimizer_(optimizer) {
    for (const Slot& slot : optimizer_.slots()) values_.push_back(slot.master.detach().clone());
    for (const auto& [key, state] : optimizer_.inner().state())
      states_.emplace_back(key, deep_copy(*state));
  }

  void give_back() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values_.size(); ++i) optimizer_.slots()[i].master.copy_(values_[i]);
    optimizer_.inner().state().clear();
    for (auto& [key, state] : states_) optimizer_.inner().state()[key] = std::move(state);
  }

 private:
  OptimizerState& optimizer_;
  std::vector<at::Tensor> values_;
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states_;
};

}  // namespace

/// One `step(closure)`.
class ClosureRun {
 public:
  ClosureRun(OptimizerState& optimizer, const torch::optim::Optimizer::LossClosure& closure)
      : optimizer_(optimizer), closure_(closure) {
    if (evaluates_repeatedly(optimizer_.inner())) backup_.emplace(optimizer_);
  }

  ~ClosureRun() { optimizer_.is_stepping_ = false; }
  ClosureRun(const ClosureRun&) = delete;
  ClosureRun& operator=(const ClosureRun&) = delete;

  std::shared_ptr<const StepRecord> run() {
    const auto evaluate = [this] { return this->evaluate(); };
    optimizer_.is_stepping_ = true;
    try {
      optimizer_.run_inner(evaluate);
    } catch (const GaveUp&) {
      give_back();
      return optimizer_.finish(false);
    } catch (...) {
      give_back();
      throw;
    }
    return optimizer_.finish(true);
  }

 private:
  at::Tensor evaluate() {
    // The optimizer may have moved masters since the last evaluation.
    if (evaluations_++ > 0) {
      optimizer_.publish_masters();
      optimizer_.refresh_casts();
    }
    for (int attempt = 1;; ++attempt) {
      at::Tensor loss = closure_();
      optimizer_.check_step();
      optimizer_.check_gradients();
      optimizer_.settle_deferred();
      if (!optimizer_.must_skip()) return loss;
      if (attempt == kMostEvaluations) throw GaveUp();
      optimizer_.snapshot_.give_back();
      optimizer_.drop_gradients();
      optimizer_.forget_overflow();
    }
  }

  void give_back() {
    if (backup_) backup_->give_back();
    optimizer_.publish_masters();
    optimizer_.refresh_casts();
  }

  OptimizerState& optimizer_;
  const torch::optim::Optimizer::LossClosure& closure_;
  std::optional<Backup> backup_;
  int evaluations_ = 0;
};

std::shared_ptr<const StepRecord> OptimizerState::step(
    const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return step();
  if (!session_.enabled()) {
    if (ref_.step) {
      ref_.step(closure);
    } else {
      inner().step(closure);
    }
    count_applied();
    return std::make_shared<StepRecord>();
  }
  check_step();
  return ClosureRun(*this, closure).run();
}

}  // namespace mezzo::detail
