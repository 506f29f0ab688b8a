// Steps whose optimizer evaluates the loss itself.
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "amp/optimizer_step.h"
#include "amp/param_state.h"
#include "amp/shown_gradients.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

constexpr int kMostEvaluations = 20;

/// Leaves the inner optimizer's step when the loss overflows at every scale that was tried.
struct GaveUp {};

/// ... when its first evaluation made no gradient.
struct FoundNone {};

/// Parameters and optimizer state at one moment, for optimizers that move them between evaluations.
class Backup {
 public:
  Backup(OptimizerSlots& slots, torch::optim::Optimizer& inner) : slots_(slots), inner_(inner) {
    for (const Slot& slot : slots_.all()) values_.push_back(slot.master.detach().clone());
    for (const auto& [key, state] : inner_.state())
      states_.emplace_back(key, deep_copy(*state, "step"));
  }

  void give_back() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values_.size(); ++i) slots_.all()[i].master.copy_(values_[i]);
    inner_.state().clear();
    for (auto& [key, state] : states_) inner_.state()[key] = std::move(state);
  }

 private:
  OptimizerSlots& slots_;
  torch::optim::Optimizer& inner_;
  std::vector<at::Tensor> values_;
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states_;
};

}  // namespace

/// One step by a closure.
class OptimizerStep::ClosureRun {
 public:
  ClosureRun(OptimizerStep& step, const torch::optim::Optimizer::LossClosure& closure)
      : step_(step), closure_(closure), stepping_(step.slots_) {
    torch::optim::Optimizer& inner = *step_.ref_.inner;
    if (evaluates_repeatedly(inner)) backup_.emplace(step_.slots_, inner);
  }

  std::shared_ptr<const StepRecord> run() {
    try {
      step_.run_inner([this] { return this->evaluate(); });
    } catch (const GaveUp&) {
      give_back();
      return step_.finish(false);
    } catch (const FoundNone&) {
      return step_.finish_empty();
    } catch (...) {
      give_back();
      throw;
    }
    return step_.finish(true);
  }

 private:
  at::Tensor evaluate() {
    // The optimizer may have moved masters since the last evaluation.
    if (evaluations_++ > 0) publish();
    for (int attempt = 1;; ++attempt) {
      at::Tensor loss = closure_();
      const HiddenGradients hidden(step_.session_);
      const OptimizerProgress& progress = step_.scope_.progress();
      step_.check();
      step_.check_gradients();
      step_.settle_deferred();
      step_.look_at_plain_gradients();
      if (!step_.scope_.must_skip()) {
        if (evaluations_ == 1 && !step_.gradients_.any_outside_scopes()) throw FoundNone();
        return loss;
      }
      // At the same scale it would overflow again.
      const bool falls = step_.session_.plan().scale_rules.dynamic && !progress.is_plain;
      if (!falls || attempt == kMostEvaluations) throw GaveUp();
      step_.snapshot_.give_back();
      step_.gradients_.drop();
      step_.scope_.forget_overflow();
    }
  }

  void give_back() {
    if (backup_) backup_->give_back();
    publish();
  }

  void publish() {
    step_.slots_.publish_masters();
    step_.slots_.refresh_casts();
    step_.slots_.note_cast_values();
  }

  OptimizerStep& step_;
  const torch::optim::Optimizer::LossClosure& closure_;
  const OptimizerSlots::Stepping stepping_;
  std::optional<Backup> backup_;
  int evaluations_ = 0;
};

std::shared_ptr<const StepRecord> OptimizerStep::run(
    const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return run();
  if (!session_.enabled()) {
    if (ref_.step) {
      ref_.step(closure);
    } else {
      ref_.inner->step(closure);
    }
    return finish_disabled();
  }
  if (slots_.capture() != 0) {
    raise("step",
          "a graph is being captured, and a closure is evaluated until the host finds its "
          "loss finite: call backward() and step() without a closure, or step outside of the "
          "graph");
  }
  check();
  return ClosureRun(*this, closure).run();
}

}  // namespace mezzo::amp::detail
